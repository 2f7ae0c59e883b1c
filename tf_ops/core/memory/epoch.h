// EpochDomain: epoch-based reclamation. Memory that readers walk without a lock
// is freed only when no reader can still see it.
//
//   reader:  { EpochDomain::Guard guard(&domain);  ... follow pointers ... }
//   writer:  swap the pointer; domain.Retire(old);
//
// A reader announces the epoch it began in; what was retired in an epoch is
// freed once every announced epoch is later. Announcing is one
// compare-and-swap a batch, on one of 64 cache lines: the one that the thread's
// id hashes to, or the next that is free. Where all are taken, it waits.

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
  // REQUIRES: no guard is alive.
  ~EpochDomain();

  class Guard {
   public:
    explicit Guard(EpochDomain* domain) : announced_(domain->Enter()) {}
    ~Guard() { announced_->store(0, std::memory_order_release); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    std::atomic<uint64_t>* announced_;
  };

  // What can be retired, made in memory of std::malloc, with pages of its own
  // or without. The links lie in the object, so letting go of memory needs
  // none.
  class Retirable {
   public:
    // Without readers.
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
  // Collect. The caller has already unlinked it.
  void Retire(Retirable* object);
  // Frees what no reader can see any more.
  void Collect();

 private:
  static constexpr int kReaders = 64;
  struct alignas(64) Announcement {
    std::atomic<uint64_t> epoch{0};  // 0: free
  };

  std::atomic<uint64_t>* Enter();
  // Takes what can be freed off the list.
  Retirable* TakeUnseen() LODESTAR_REQUIRES(mutex_);
  static void FreeAll(Retirable* objects);

  std::atomic<uint64_t> epoch_{1};
  Announcement announcements_[kReaders];
  Mutex mutex_;
  std::atomic<Retirable*> retired_{nullptr};  // written with mutex_
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_MEMORY_EPOCH_H_
