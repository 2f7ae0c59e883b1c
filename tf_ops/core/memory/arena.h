// Arena: memory of row segments, in large anonymous mappings (huge pages where
// the system grants them). The memory stays readable until the arena is
// destroyed, even after its pages are released.

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

  // Returns zeroed memory, aligned to a cache line (or to a page, if it spans
  // one or more), or nullptr if out of memory.
  void* Allocate(int64_t bytes);

  // Returns the whole pages within `memory` to the system; they read as zeros
  // from then on. Returns false if the system keeps the pages and their
  // contents.
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
