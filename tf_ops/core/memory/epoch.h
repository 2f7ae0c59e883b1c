// EpochDomain: epoch-based reclamation. Memory that readers access without a
// lock is freed only when no reader can still see it.
//
//   reader:  { EpochDomain::Guard guard(&domain);  ... follow pointers ... }
//   writer:  swap the pointer; domain.Retire(old);
//
// A reader announces the epoch in which it began. Objects retired in an epoch
// are freed once every announced epoch is later.
//
// Announcing costs one compare-and-swap per batch, on one of 64 cache lines
// that threads use in turn: up to 64 threads have a line each, and 128 share
// one between two. A line has room for 7 readers. When it is full, a reader
// appends another line (64 bytes), which stays until the domain is destroyed.
// So no number of readers makes one wait; only if memory for a line runs out
// does a reader wait for a free place.

#ifndef LODESTAR_TF_OPS_CORE_MEMORY_EPOCH_H_
#define LODESTAR_TF_OPS_CORE_MEMORY_EPOCH_H_

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/memory/page_run.h"

namespace lodestar {

class EpochDomain {
 public:
  EpochDomain() = default;
  EpochDomain(const EpochDomain&) = delete;
  EpochDomain& operator=(const EpochDomain&) = delete;
  // Requires: no guard is alive.
  ~EpochDomain();

  class Guard {
   public:
    explicit Guard(EpochDomain* domain) : announced_(domain->Enter()) {}
    ~Guard() { announced_->store(0, std::memory_order_release); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    std::atomic<uint64_t>* const announced_;
  };

  // Base of objects that can be retired. Allocated by std::malloc, optionally
  // with a PageRun. The list links are part of the object, so Retire does not
  // allocate.
  class Retirable {
   public:
    // Frees an object that has no readers.
    static void Free(Retirable* object) {
      FreePages(object->pages);
      std::free(object);
    }

    PageRun pages;

   private:
    friend class EpochDomain;
    uint64_t epoch_ = 0;
    Retirable* next_ = nullptr;
  };

  // Frees `object` once no reader can see it: now, or in a later Retire or
  // Collect. The caller must have unlinked it.
  void Retire(Retirable* object);
  // Frees retired objects that no reader can see.
  void Collect();

 private:
  static constexpr int kLines = 64;
  static constexpr int kReaders = 7;
  struct alignas(64) Line {
    std::atomic<uint64_t> epochs[kReaders] = {};  // 0: free
    std::atomic<Line*> next{nullptr};
  };

  // Announces the current epoch and returns its place.
  std::atomic<uint64_t>* Enter();
  std::atomic<uint64_t>* AnnounceIn(Line* line);
  // Removes the objects that can be freed from the list and returns them.
  Retirable* TakeUnseen() LODESTAR_REQUIRES(mutex_);
  static void FreeAll(Retirable* objects);

  std::atomic<uint64_t> epoch_{1};
  Line lines_[kLines];
  Mutex mutex_;
  // Retired objects, oldest first. Written under mutex_.
  std::atomic<Retirable*> first_{nullptr};
  Retirable* last_ LODESTAR_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_MEMORY_EPOCH_H_
