// Arena: the memory of row segments. Blocks come from large anonymous mappings
// (huge pages where the system grants them), and are returned all at once.

#ifndef LODESTAR_TF_OPS_CORE_ARENA_H_
#define LODESTAR_TF_OPS_CORE_ARENA_H_

#include <cstdint>
#include <mutex>
#include <vector>

namespace lodestar {

// Thread-safe.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Zeroed memory, aligned to a cache line; nullptr: out of memory.
  void* Allocate(int64_t bytes);

 private:
  struct Mapping {
    void* address;
    int64_t bytes;
  };
  std::mutex mutex_;
  std::vector<Mapping> mappings_;
  char* next_ = nullptr;
  int64_t left_ = 0;
  int64_t mapped_ = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ARENA_H_
