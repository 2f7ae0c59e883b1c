#include "tf_ops/core/rows/step_gate.h"

#include <new>
#include <utility>

namespace lodestar {

StepGate& StepGate::Global() {
  // Never destroyed: a step may end after the process has begun to exit.
  static StepGate* const gate = new StepGate();
  return *gate;
}

bool StepGate::TryEnter() {
  MutexLock lock(&mutex_);
  if (!CanEnter()) return false;
  ++inside_;
  return true;
}

bool StepGate::EnterOrQueue(const std::shared_ptr<Waiting>& waiting) {
  MutexLock lock(&mutex_);
  if (!CanEnter()) {
    queue_.push_back(waiting);
    return false;
  }
  ++inside_;
  return true;
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
      // Built without allocating, because memory is short.
      status = Status(StatusCode::kResourceExhausted, "out of memory");
    }
  }
  Queue admitted;
  {
    MutexLock lock(&mutex_);
    if (alone) {
      flipping_ = false;
      changed_.NotifyAll();
    }
    --flips_;
    admitted = AdmitQueue();
  }
  Schedule(admitted);
  if (alone) return status;
  return FailedPrecondition(
      "found no point between two optimizer steps within ", at_most.count(),
      " ms: ", inside, " steps are still running.");
}

void StepGate::Close() {
  MutexLock lock(&mutex_);
  ++closes_;
}

void StepGate::Open() {
  Queue admitted;
  {
    MutexLock lock(&mutex_);
    --closes_;
    admitted = AdmitQueue();
  }
  Schedule(admitted);
}

StepGate::Queue StepGate::AdmitQueue() {
  Queue admitted;
  if (!CanEnter()) return admitted;
  admitted.swap(queue_);
  inside_ += static_cast<int64_t>(admitted.size());
  return admitted;
}

// An exception must not leave steps admitted that never run: all later flips
// would wait for them.
void StepGate::Schedule(const Queue& admitted) {
  for (const std::shared_ptr<Waiting>& waiting : admitted) {
    try {
      waiting->schedule([waiting] { waiting->Start(); });
    } catch (const std::bad_alloc&) {
      try {
        waiting->Start();
      } catch (const std::bad_alloc&) {
        // The step threw. It has run and must not run again.
      }
    }
  }
}

void StepScope::End() {
  StepGate* gate = gate_.exchange(nullptr);
  if (gate != nullptr) gate->Exit();
}

}  // namespace lodestar
