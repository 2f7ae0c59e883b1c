// StepGate: optimizer steps inside, snapshots between them.
//
//   step:      Enter ... updates of all its tables ... Exit
//   snapshot:  Flip(the moment that it is of)
//   snapshot:  Close() while it holds more than it may; Open()
//
// Steps are inside together. A flip waits until none is, and none comes in
// before it is over, so it sees all of a step or nothing. While the gate is
// closed steps wait outside. None waits with a thread: a step that finds no way
// in leaves a call behind, which whoever lets it in makes.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_STEP_GATE_H_
#define LODESTAR_TF_OPS_CORE_ROWS_STEP_GATE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
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

  // True: the caller is inside.
  bool TryEnter();
  // Makes the call inside: at once, or later on the thread that lets it in,
  // which should not be kept.
  void Enter(std::function<void()> entered);
  // REQUIRES: inside.
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
  using Calls = std::vector<std::function<void()>>;

  bool CanEnter() const LODESTAR_REQUIRES(mutex_) {
    return flips_ == 0 && closes_ == 0;
  }
  // Lets in who waits, if they may enter. The caller makes the calls once it
  // has given the mutex back.
  Calls LetIn() LODESTAR_REQUIRES(mutex_);
  static void Make(const Calls& calls);

  Mutex mutex_;
  ConditionVariable changed_;
  int64_t inside_ LODESTAR_GUARDED_BY(mutex_) = 0;
  // Wanted or under way.
  int64_t flips_ LODESTAR_GUARDED_BY(mutex_) = 0;
  bool flipping_ LODESTAR_GUARDED_BY(mutex_) = false;
  int64_t closes_ LODESTAR_GUARDED_BY(mutex_) = 0;
  Calls waiting_ LODESTAR_GUARDED_BY(mutex_);
};

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
