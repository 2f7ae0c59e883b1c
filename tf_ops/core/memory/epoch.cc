#include "tf_ops/core/memory/epoch.h"

#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "tf_ops/core/base/guards.h"

namespace lodestar {

EpochDomain::~EpochDomain() {
  FreeAll(first_);
  for (Line& line : lines_) {
    for (Line* added = line.next; added != nullptr;) {
      delete std::exchange(added, added->next);
    }
  }
}

// Sequentially consistent: either Retire sees the epoch, or the reader's
// following loads see the pointer that Retire's caller swapped in.
std::atomic<uint64_t>* EpochDomain::AnnounceIn(Line* line) {
  for (std::atomic<uint64_t>& announced : line->epochs) {
    uint64_t free = 0;
    if (announced.load(std::memory_order_relaxed) == 0 &&
        announced.compare_exchange_strong(free, epoch_.load())) {
      return &announced;
    }
  }
  return nullptr;
}

std::atomic<uint64_t>* EpochDomain::Enter() {
  static std::atomic<size_t> threads{0};
  static thread_local const size_t thread =
      threads.fetch_add(1, std::memory_order_relaxed);
  size_t first = thread;
  Line* line = &lines_[first % kLines];
  while (true) {
    std::atomic<uint64_t>* const announced = AnnounceIn(line);
    if (announced != nullptr) return announced;
    Line* next = line->next.load();
    if (next == nullptr) {
      Line* const added = new (std::nothrow) Line();
      if (added == nullptr) {
        std::this_thread::yield();
        next = &lines_[++first % kLines];
      } else if (line->next.compare_exchange_strong(next, added)) {
        next = added;
      } else {
        delete added;  // another reader was faster
      }
    }
    line = next;
  }
}

EpochDomain::Retirable* EpochDomain::TakeUnseen() {
  uint64_t oldest = std::numeric_limits<uint64_t>::max();
  for (const Line& first : lines_) {
    for (const Line* line = &first; line != nullptr; line = line->next.load()) {
      for (const std::atomic<uint64_t>& announced : line->epochs) {
        const uint64_t epoch = announced.load();
        if (!GuardHolds(StoreGuard::kEpochs)) continue;
        if (epoch != 0 && epoch < oldest) oldest = epoch;
      }
    }
  }
  Retirable* const unseen = first_;
  Retirable* last = nullptr;
  Retirable* object = unseen;
  while (object != nullptr && object->epoch_ < oldest) {
    last = std::exchange(object, object->next_);
  }
  if (last == nullptr) return nullptr;
  last->next_ = nullptr;
  first_ = object;
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
    object->next_ = nullptr;
    if (first_ == nullptr) {
      first_ = object;
    } else {
      last_->next_ = object;
    }
    last_ = object;
    unseen = TakeUnseen();
  }
  FreeAll(unseen);
}

void EpochDomain::Collect() {
  if (first_.load(std::memory_order_relaxed) == nullptr) return;
  Retirable* unseen;
  {
    MutexLock lock(&mutex_);
    unseen = TakeUnseen();
  }
  FreeAll(unseen);
}

}  // namespace lodestar
