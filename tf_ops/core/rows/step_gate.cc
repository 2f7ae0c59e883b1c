#include "tf_ops/core/rows/step_gate.h"

#include <new>
#include <utility>

namespace lodestar {

StepGate& StepGate::Global() {
  // Never destroyed: a step may end after the process has begun to.
  static StepGate* const gate = new StepGate();
  return *gate;
}

bool StepGate::TryEnter() {
  MutexLock lock(&mutex_);
  if (!CanEnter()) return false;
  ++inside_;
  return true;
}

void StepGate::Enter(std::function<void()> entered) {
  {
    MutexLock lock(&mutex_);
    if (!CanEnter()) {
      waiting_.push_back(std::move(entered));
      return;
    }
    ++inside_;
  }
  entered();
}

void StepGate::Exit() {
  MutexLock lock(&mutex_);
  if (--inside_ == 0) changed_.NotifyAll();
}

Status StepGate::Flip(const std::function<Status()>& flip,
                      std::chrono::milliseconds at_most) {
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  bool alone = false;
  int64_t inside = 0;
  {
    MutexLock lock(&mutex_);
    ++flips_;
    while ((inside_ > 0 || flipping_) &&
           changed_.WaitUntil(&mutex_, deadline)) {
    }
    alone = inside_ == 0 && !flipping_;
    inside = inside_;
    if (alone) flipping_ = true;
  }
  Status status;
  if (alone) {
    try {
      status = flip();
    } catch (const std::bad_alloc&) {
      // So short that it needs no memory itself.
      status = Status(StatusCode::kResourceExhausted, "out of memory");
    }
  }
  Calls entered;
  {
    MutexLock lock(&mutex_);
    if (alone) {
      flipping_ = false;
      changed_.NotifyAll();
    }
    --flips_;
    entered = LetIn();
  }
  Make(entered);
  if (alone) return status;
  return FailedPrecondition(
      "no moment between two optimizer steps was found for ", at_most.count(),
      " ms: ", inside, " were under way all the time");
}

void StepGate::Close() {
  MutexLock lock(&mutex_);
  ++closes_;
}

void StepGate::Open() {
  Calls entered;
  {
    MutexLock lock(&mutex_);
    --closes_;
    entered = LetIn();
  }
  Make(entered);
}

StepGate::Calls StepGate::LetIn() {
  Calls entered;
  if (!CanEnter()) return entered;
  entered.swap(waiting_);
  inside_ += static_cast<int64_t>(entered.size());
  return entered;
}

void StepGate::Make(const Calls& calls) {
  for (const std::function<void()>& call : calls) call();
}

void StepStay::End() {
  StepGate* gate = gate_.exchange(nullptr);
  if (gate != nullptr) gate->Exit();
}

}  // namespace lodestar
