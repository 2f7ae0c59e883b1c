#include "tf_ops/core/epoch.h"

#include <functional>
#include <limits>
#include <thread>

namespace lodestar {

EpochDomain::~EpochDomain() {
  for (const Retired& r : retired_) r.deleter(r.object);
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

void EpochDomain::Retire(void* object, void (*deleter)(void*)) {
  std::vector<Retired> ready;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    retired_.push_back({epoch_.fetch_add(1), object, deleter});
    uint64_t oldest = std::numeric_limits<uint64_t>::max();
    for (const Slot& slot : slots_) {
      const uint64_t epoch = slot.epoch.load();
      if (epoch != 0 && epoch < oldest) oldest = epoch;
    }
    size_t kept = 0;
    for (const Retired& r : retired_) {
      if (r.epoch < oldest) {
        ready.push_back(r);
      } else {
        retired_[kept++] = r;
      }
    }
    retired_.resize(kept);
  }
  for (const Retired& r : ready) r.deleter(r.object);
}

}  // namespace lodestar
