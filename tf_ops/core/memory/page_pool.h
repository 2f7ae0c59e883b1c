// PagePool: runs of pages inside huge pages. A search in an index of many
// megabytes reads random lines, and a miss of the TLB costs as much as a miss
// of the caches; one entry of the TLB covers a huge page.

#ifndef LODESTAR_TF_OPS_CORE_MEMORY_PAGE_POOL_H_
#define LODESTAR_TF_OPS_CORE_MEMORY_PAGE_POOL_H_

#include <cstddef>

#include "tf_ops/core/base/mutex.h"

namespace lodestar {

// Thread-safe.
class PagePool {
 public:
  static constexpr size_t kPage = 4096;
  // Longer runs are mappings of their own.
  static constexpr size_t kMostPages = 128;

  PagePool() = default;
  // Requires: every run is free.
  ~PagePool() = default;
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // The pool of this process.
  static PagePool* OfProcess();

  // Returns `pages` pages with any content, or nullptr if out of memory.
  // Requires: pages is in [1, kMostPages].
  void* Allocate(size_t pages);
  // Frees a run of Allocate. A huge page without runs is returned to the
  // system.
  void Free(void* run, size_t pages);

  // Number of huge pages.
  size_t size() const {
    MutexLock lock(&mutex_);
    return size_;
  }

 private:
  struct Chunk;

  Chunk* MapChunk() LODESTAR_REQUIRES(mutex_);
  void UnmapChunk(Chunk* chunk) LODESTAR_REQUIRES(mutex_);

  mutable Mutex mutex_;
  // Linked in the order in which they were mapped: runs gather in the first
  // ones, so that the last ones can be returned.
  Chunk* first_ LODESTAR_GUARDED_BY(mutex_) = nullptr;
  Chunk* last_ LODESTAR_GUARDED_BY(mutex_) = nullptr;
  size_t size_ LODESTAR_GUARDED_BY(mutex_) = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_MEMORY_PAGE_POOL_H_
