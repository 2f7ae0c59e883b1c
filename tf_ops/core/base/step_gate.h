// Gates that let snapshots begin between optimizer steps. Each table has one.
//
//   step:      StepGates of the tables that it updates: Run(updates)
//   snapshot:  StepGates of the tables that it contains: Flip(begin)
//   snapshot:  Close() while it holds too much memory, then Open()
//
// A step enters all of its gates before it writes, and leaves them after it has
// written. Any number of steps run at the same time. A flip waits until no step
// is inside its gates and admits no new steps until it is over, so a snapshot
// contains a step completely or not at all. Sets without a common gate do not
// affect each other. A step that finds a gate closed is queued there without
// blocking a thread; the thread that opens the gate schedules it.
//
// Nothing deadlocks: a step waits outside of all gates, and flips acquire their
// gates in the same order.

#ifndef LODESTAR_TF_OPS_CORE_BASE_STEP_GATE_H_
#define LODESTAR_TF_OPS_CORE_BASE_STEP_GATE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

class StepScope;

// The gate of one table, to be used through StepGates.
class StepGate {
 public:
  StepGate() = default;
  StepGate(const StepGate&) = delete;
  StepGate& operator=(const StepGate&) = delete;

 private:
  friend class StepGates;

  // A queued step.
  struct Waiting;
  // Moving a step to another queue allocates nothing.
  using Queue = std::list<std::shared_ptr<Waiting>>;

  // Returns true if the caller is now inside. Otherwise appends `waiting`,
  // unless it is null, to the queue.
  bool Enter(Queue* waiting);
  void Exit();

  void Close();
  // Ends a Close. If the gate is open now, appends the queued steps to `freed`.
  void Open(Queue* freed);
  // Waits until no step and no other flip is inside, and sets *inside to the
  // number of steps. Returns false at the deadline. Requires: the caller has
  // called Close, so that no step enters.
  bool BeginFlip(std::chrono::steady_clock::time_point deadline,
                 int64_t* inside);
  void EndFlip();

  Mutex mutex_;
  ConditionVariable changed_;
  int64_t inside_ LODESTAR_GUARDED_BY(mutex_) = 0;
  int64_t closes_ LODESTAR_GUARDED_BY(mutex_) = 0;
  bool flipping_ LODESTAR_GUARDED_BY(mutex_) = false;
  Queue queue_ LODESTAR_GUARDED_BY(mutex_);
};

// The gates of the tables of a step or of a snapshot. Copying allocates
// nothing. Thread-safe.
class StepGates {
 public:
  // No gates: steps and flips never wait.
  StepGates() = default;
  // Gates may occur more than once.
  explicit StepGates(std::vector<std::shared_ptr<StepGate>> gates);

  // Schedules a call on another thread.
  using Scheduler = std::function<void(std::function<void()>)>;

  // Returns true if the caller is now inside all gates, false if it is inside
  // none of them.
  bool TryEnter() const { return Enter(nullptr); }
  // Requires: the caller is inside.
  void Exit() const;
  // Calls `step` inside the gates, with the StepScope that leaves them, and
  // then `done`, each exactly once. Both run on this thread before Run returns.
  // If a gate is closed they run later instead, through `schedule`, or on the
  // thread that opens the gate if there is no memory to schedule them. Returns
  // ResourceExhausted, and calls neither, if there is no memory to queue them.
  // Exceptions on this thread propagate to the caller.
  template <typename Step, typename Done>
  Status Run(const Scheduler& schedule, const Step& step,
             const Done& done) const;

  // Waits up to `at_most` until no step is inside any of the gates, then calls
  // `flip` while none can enter and returns its result. Returns
  // FailedPrecondition, without calling `flip`, on timeout, and
  // ResourceExhausted if `flip` threw std::bad_alloc.
  Status Flip(
      const std::function<Status()>& flip,
      std::chrono::milliseconds at_most = std::chrono::minutes(1)) const;

  // Each Close needs one Open.
  void Close() const;
  void Open() const;

 private:
  using Gates = std::vector<std::shared_ptr<StepGate>>;

  Span<const std::shared_ptr<StepGate>> gates() const {
    if (gates_ == nullptr) return {};
    return *gates_;
  }
  // Enters all gates or none. In the latter case `waiting`, unless it is null,
  // is queued at a closed gate, and may be running already.
  bool Enter(StepGate::Queue* waiting) const;
  // Schedules the steps that find all of their gates open, and queues the
  // others again.
  static void Admit(StepGate::Queue queue);

  // Unique and ascending by address; null: none.
  std::shared_ptr<const Gates> gates_;
};

// Leaves the gates on End or destruction, whichever comes first.
class StepScope {
 public:
  // Requires: the caller is inside `gates`.
  explicit StepScope(StepGates gates)
      : gates_(std::move(gates)), inside_(true) {}
  StepScope(StepScope&& other) noexcept
      : gates_(other.gates_), inside_(other.inside_.exchange(false)) {}
  ~StepScope() { End(); }
  StepScope& operator=(StepScope&&) = delete;

  // Idempotent and thread-safe.
  void End() {
    if (inside_.exchange(false)) gates_.Exit();
  }

 private:
  const StepGates gates_;
  std::atomic<bool> inside_;
};

struct StepGate::Waiting {
  // Makes the call, once. Requires: the caller is inside `gates`.
  void Start() {
    if (!started.exchange(true)) call(StepScope(gates));
  }

  const StepGates gates;
  const StepGates::Scheduler schedule;
  const std::function<void(StepScope)> call;
  std::atomic<bool> started{false};
};

template <typename Step, typename Done>
Status StepGates::Run(const Scheduler& schedule, const Step& step,
                      const Done& done) const {
  if (!TryEnter()) {
    StepGate::Queue waiting;
    try {
      const auto call = [step, done](StepScope scope) {
        step(std::move(scope));
        done();
      };
      waiting.push_back(std::shared_ptr<StepGate::Waiting>(
          new StepGate::Waiting{*this, schedule, call}));
    } catch (const std::bad_alloc&) {
      // Built without allocating, because memory is short.
      return Status(StatusCode::kResourceExhausted, "out of memory");
    }
    if (!Enter(&waiting)) return Status();
  }
  step(StepScope(*this));
  done();
  return Status();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_STEP_GATE_H_
