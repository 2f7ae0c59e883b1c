// StepGate: optimizer steps inside, snapshots between them.
//
//   step:      Enter ... updates of all its tables ... Exit
//   snapshot:  Flip(the moment that it is of)
//   snapshot:  Close() while it holds more than it may; Open()
//
// Any number of steps are inside at a time. A flip waits until no step is
// inside and keeps new steps out until it is over, so it sees all of a step or
// nothing. While the gate is closed, steps queue outside without blocking a
// thread: whoever opens the gate schedules them.

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

  // That of all tables of the process: a step may be of any of them.
  static StepGate& Global();

  // Schedules a call on another thread.
  using Scheduler = std::function<void(std::function<void()>)>;

  // Returns true if the caller is now inside.
  bool TryEnter();
  // Calls `step` inside the gate and then `done`, each exactly once. The step
  // ends its stay with Exit. Both run on this thread before Run returns; or,
  // while the gate is closed, later through `schedule`, or on the thread that
  // opens the gate if memory is too short to schedule them. Returns
  // ResourceExhausted, and calls neither, if memory is too short to queue them.
  // What they throw on this thread passes to the caller.
  template <typename Step, typename Done>
  Status Run(const Scheduler& schedule, const Step& step, const Done& done);
  // Requires: the caller is inside.
  void Exit();

  // Waits until no one is inside, at most so long, and calls `flip` while none
  // comes in. FailedPrecondition: some step was inside all the time, and
  // nothing was called. ResourceExhausted: `flip` threw std::bad_alloc. Else
  // what it returns.
  Status Flip(const std::function<Status()>& flip,
              std::chrono::milliseconds at_most = std::chrono::minutes(1));

  // Closes are counted, and so are the Opens that undo them.
  void Close();
  void Open();

 private:
  // A step that waits outside.
  struct Waiting {
    // Makes the call unless it was made before.
    void Start() {
      if (!started.exchange(true)) call();
    }

    Scheduler schedule;
    std::function<void()> call;
    std::atomic<bool> started{false};
  };
  using Queue = std::vector<std::shared_ptr<Waiting>>;

  // Returns true if the caller is now inside; else `waiting` is in the queue.
  bool EnterOrQueue(const std::shared_ptr<Waiting>& waiting);
  bool CanEnter() const LODESTAR_REQUIRES(mutex_) {
    return flips_ == 0 && closes_ == 0;
  }
  // Empties the queue if steps may enter; they are inside from here on. The
  // caller schedules them after it has released the mutex.
  Queue AdmitQueue() LODESTAR_REQUIRES(mutex_);
  static void Schedule(const Queue& admitted);

  Mutex mutex_;
  ConditionVariable changed_;
  int64_t inside_ LODESTAR_GUARDED_BY(mutex_) = 0;
  // Wanted or under way.
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
      // So short that it needs no memory itself.
      return Status(StatusCode::kResourceExhausted, "out of memory");
    }
  }
  step();
  done();
  return Status();
}

// A step's stay inside, which ends with this at the latest.
class StepStay {
 public:
  // REQUIRES: the caller is inside `gate`.
  explicit StepStay(StepGate* gate) : gate_(gate) {}
  ~StepStay() { End(); }
  StepStay(const StepStay&) = delete;
  StepStay& operator=(const StepStay&) = delete;

  // Once or more, on any thread.
  void End();

 private:
  std::atomic<StepGate*> gate_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_STEP_GATE_H_
