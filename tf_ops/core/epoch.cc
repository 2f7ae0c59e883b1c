#include "tf_ops/core/epoch.h"

#include <cstdlib>
#include <functional>
#include <limits>
#include <thread>
#include <utility>

#include "tf_ops/core/guards.h"

namespace lodestar {

EpochDomain::~EpochDomain() {
  while (retired_ != nullptr)
    std::free(std::exchange(retired_, retired_->next_));
}

std::atomic<uint64_t>* EpochDomain::Enter() {
  static thread_local const size_t start =
      std::hash<std::thread::id>()(std::this_thread::get_id());
  for (size_t i = start;; ++i) {
    std::atomic<uint64_t>& slot = slots_[i % kSlots].epoch;
    uint64_t free = 0;
    // Sequentially consistent: either Retire sees this slot, or the loads that
    // follow see the pointer that Retire's caller swapped in.
    if (slot.load(std::memory_order_relaxed) == 0 &&
        slot.compare_exchange_strong(free, epoch_.load())) {
      return &slot;
    }
    if (i - start >= kSlots) std::this_thread::yield();
  }
}

void EpochDomain::Retire(Retirable* object) {
  Retirable* ready = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    object->epoch_ = epoch_.fetch_add(1);
    object->next_ = retired_;
    retired_ = object;
    uint64_t oldest = std::numeric_limits<uint64_t>::max();
    for (const Slot& slot : slots_) {
      const uint64_t epoch = slot.epoch.load();
      if (!GuardHolds(StoreGuard::kEpochs)) continue;
      if (epoch != 0 && epoch < oldest) oldest = epoch;
    }
    for (Retirable** link = &retired_; *link != nullptr;) {
      Retirable* retired = *link;
      if (retired->epoch_ < oldest) {
        *link = retired->next_;
        retired->next_ = ready;
        ready = retired;
      } else {
        link = &retired->next_;
      }
    }
  }
  while (ready != nullptr) std::free(std::exchange(ready, ready->next_));
}

}  // namespace lodestar
