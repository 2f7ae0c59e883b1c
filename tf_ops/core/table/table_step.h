// TableStep: the step counter of a table, used to date occurrences.

#ifndef LODESTAR_TF_OPS_CORE_TABLE_TABLE_STEP_H_
#define LODESTAR_TF_OPS_CORE_TABLE_TABLE_STEP_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace lodestar {

// Thread-safe.
class TableStep {
 public:
  int64_t value() const { return value_.load(std::memory_order_relaxed); }
  // Returns true if the step is set by SetStep instead of by an optimizer.
  bool own() const { return own_.load(std::memory_order_relaxed); }
  // Returns true if `seen` is a step that began after the caller read `now`. A
  // `seen` above `now` may also be from before the step was set back; that one
  // is above the current value as well.
  bool IsOvertaken(int64_t now, int64_t seen) const {
    return seen > now && seen <= value();
  }
  // Returns the former value.
  int64_t Set(int64_t value, bool own) {
    own_.store(own, std::memory_order_relaxed);
    return value_.exchange(value, std::memory_order_relaxed);
  }
  void Release() { own_.store(false, std::memory_order_relaxed); }
  // Moves the step for an optimizer: to `value`, but by at least one.
  // Overlapping steps may have counted the same value, and a new optimizer
  // counts from 0. Returns whether it has moved, and both values.
  struct Move {
    bool moved = false;
    int64_t before = 0;
    int64_t now = 0;
  };
  Move MoveTo(int64_t value) {
    if (own()) return {};
    const auto next = [value](int64_t now) {
      return std::max(static_cast<int64_t>(uint64_t(now) + 1), value);
    };
    int64_t now = value_.load(std::memory_order_relaxed);
    while (!value_.compare_exchange_weak(now, next(now),
                                         std::memory_order_relaxed)) {
    }
    return {true, now, next(now)};
  }

 private:
  std::atomic<int64_t> value_{0};
  std::atomic<bool> own_{false};
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_TABLE_TABLE_STEP_H_
