// StepGate: lets snapshots begin between optimizer steps.
//
//   step:      Run(updates of all its tables, then Exit)
//   snapshot:  Flip(begin the snapshot)
//   snapshot:  Close() while it holds too much memory, then Open()
//
// Any number of steps run at the same time. A flip waits until no step is
// inside and admits no new steps until it is over, so a snapshot contains a
// step completely or not at all. While the gate is closed, steps are queued
// without blocking a thread; the thread that opens the gate schedules them.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_STEP_GATE_H_
#define LODESTAR_TF_OPS_CORE_ROWS_STEP_GATE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

class StepGate {
 public:
  StepGate() = default;
  StepGate(const StepGate&) = delete;
  StepGate& operator=(const StepGate&) = delete;

  // The gate of the process: a step may update any of its tables.
  static StepGate& Global();

  // Schedules a call on another thread.
  using Scheduler = std::function<void(std::function<void()>)>;

  // Returns true if the caller is now inside.
  bool TryEnter();
  // Calls `step` inside the gate and then `done`, each exactly once. The step
  // must call Exit. Both run on this thread before Run returns. While the gate
  // is closed they run later instead, through `schedule`, or on the thread that
  // opens the gate if there is no memory to schedule them. Returns
  // ResourceExhausted, and calls neither, if there is no memory to queue them.
  // Exceptions on this thread propagate to the caller.
  template <typename Step, typename Done>
  Status Run(const Scheduler& schedule, const Step& step, const Done& done);
  // Requires: the caller is inside.
  void Exit();

  // Waits up to `at_most` until no step is inside, then calls `flip` while none
  // can enter and returns its result. Returns FailedPrecondition, without
  // calling `flip`, on timeout, and ResourceExhausted if `flip` threw
  // std::bad_alloc.
  Status Flip(const std::function<Status()>& flip,
              std::chrono::milliseconds at_most = std::chrono::minutes(1));

  // Each Close needs one Open.
  void Close();
  void Open();

 private:
  // A queued step.
  struct Waiting {
    // Makes the call, once.
    void Start() {
      if (!started.exchange(true)) call();
    }

    Scheduler schedule;
    std::function<void()> call;
    std::atomic<bool> started{false};
  };
  using Queue = std::vector<std::shared_ptr<Waiting>>;

  // Returns true if the caller is now inside; otherwise `waiting` is queued.
  bool EnterOrQueue(const std::shared_ptr<Waiting>& waiting);
  bool CanEnter() const LODESTAR_REQUIRES(mutex_) {
    return flips_ == 0 && closes_ == 0;
  }
  // Empties the queue and counts its steps as inside, if steps may enter. The
  // caller must release the mutex and then schedule them.
  Queue AdmitQueue() LODESTAR_REQUIRES(mutex_);
  static void Schedule(const Queue& admitted);

  Mutex mutex_;
  ConditionVariable changed_;
  int64_t inside_ LODESTAR_GUARDED_BY(mutex_) = 0;
  // Waiting or running.
  int64_t flips_ LODESTAR_GUARDED_BY(mutex_) = 0;
  bool flipping_ LODESTAR_GUARDED_BY(mutex_) = false;
  int64_t closes_ LODESTAR_GUARDED_BY(mutex_) = 0;
  Queue queue_ LODESTAR_GUARDED_BY(mutex_);
};

template <typename Step, typename Done>
Status StepGate::Run(const Scheduler& schedule, const Step& step,
                     const Done& done) {
  if (!TryEnter()) {
    try {
      const auto waiting = std::make_shared<Waiting>();
      waiting->schedule = schedule;
      waiting->call = [step, done] {
        step();
        done();
      };
      if (!EnterOrQueue(waiting)) return Status();
    } catch (const std::bad_alloc&) {
      // Built without allocating, because memory is short.
      return Status(StatusCode::kResourceExhausted, "out of memory");
    }
  }
  step();
  done();
  return Status();
}

// Leaves the gate on End or destruction, whichever comes first.
class StepScope {
 public:
  // Requires: the caller is inside `gate`.
  explicit StepScope(StepGate* gate) : gate_(gate) {}
  ~StepScope() { End(); }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

  // Idempotent and thread-safe.
  void End();

 private:
  std::atomic<StepGate*> gate_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_STEP_GATE_H_
