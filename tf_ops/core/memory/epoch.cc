#include "tf_ops/core/memory/epoch.h"

#include <functional>
#include <limits>
#include <thread>
#include <utility>

#include "tf_ops/core/base/guards.h"

namespace lodestar {

EpochDomain::~EpochDomain() { FreeAll(retired_); }

std::atomic<uint64_t>* EpochDomain::Enter() {
  static thread_local const size_t start =
      std::hash<std::thread::id>()(std::this_thread::get_id());
  for (size_t i = start;; ++i) {
    std::atomic<uint64_t>& announced = announcements_[i % kReaders].epoch;
    uint64_t free = 0;
    // Sequentially consistent: either Retire sees this epoch, or the following
    // loads see the pointer that Retire's caller swapped in.
    if (announced.load(std::memory_order_relaxed) == 0 &&
        announced.compare_exchange_strong(free, epoch_.load())) {
      return &announced;
    }
    if (i - start >= kReaders) std::this_thread::yield();
  }
}

EpochDomain::Retirable* EpochDomain::TakeUnseen() {
  uint64_t oldest = std::numeric_limits<uint64_t>::max();
  for (const Announcement& announcement : announcements_) {
    const uint64_t epoch = announcement.epoch.load();
    if (!GuardHolds(StoreGuard::kEpochs)) continue;
    if (epoch != 0 && epoch < oldest) oldest = epoch;
  }
  Retirable* unseen = nullptr;
  Retirable* seen = nullptr;
  for (Retirable* object = retired_; object != nullptr;) {
    Retirable* const next = object->next_;
    Retirable** const list = object->epoch_ < oldest ? &unseen : &seen;
    object->next_ = *list;
    *list = object;
    object = next;
  }
  retired_ = seen;
  return unseen;
}

void EpochDomain::FreeAll(Retirable* objects) {
  while (objects != nullptr) {
    Retirable::Free(std::exchange(objects, objects->next_));
  }
}

void EpochDomain::Retire(Retirable* object) {
  Retirable* unseen;
  {
    MutexLock lock(&mutex_);
    object->epoch_ = epoch_.fetch_add(1);
    object->next_ = retired_;
    retired_ = object;
    unseen = TakeUnseen();
  }
  FreeAll(unseen);
}

void EpochDomain::Collect() {
  if (retired_.load(std::memory_order_relaxed) == nullptr) return;
  Retirable* unseen;
  {
    MutexLock lock(&mutex_);
    unseen = TakeUnseen();
  }
  FreeAll(unseen);
}

}  // namespace lodestar
