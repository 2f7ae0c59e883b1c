// Arena: the memory of row segments. It comes from large anonymous mappings
// (huge pages where the system grants them), and stays readable until the arena
// goes, also while its pages are given back.

#ifndef LODESTAR_TF_OPS_CORE_MEMORY_ARENA_H_
#define LODESTAR_TF_OPS_CORE_MEMORY_ARENA_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/mutex.h"

namespace lodestar {

// Thread-safe.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Zeroed memory, aligned to a cache line (to a page, if it is one or more);
  // nullptr: out of memory.
  void* Allocate(int64_t bytes);

  // Gives the whole pages of `memory` back to the system; they read zeros from
  // here on. False: the system keeps them, and what they hold.
  static bool Release(void* memory, int64_t bytes);

 private:
  struct Mapping {
    void* address;
    int64_t bytes;
  };
  Mutex mutex_;
  std::vector<Mapping> mappings_ LODESTAR_GUARDED_BY(mutex_);
  char* next_ LODESTAR_GUARDED_BY(mutex_) = nullptr;
  int64_t left_ LODESTAR_GUARDED_BY(mutex_) = 0;
  int64_t mapped_ LODESTAR_GUARDED_BY(mutex_) = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_MEMORY_ARENA_H_
