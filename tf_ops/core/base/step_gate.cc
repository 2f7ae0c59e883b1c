#include "tf_ops/core/base/step_gate.h"

#include <algorithm>
#include <functional>

namespace lodestar {

bool StepGate::Enter(Queue* waiting) {
  MutexLock lock(&mutex_);
  if (closes_ == 0) {
    ++inside_;
    return true;
  }
  if (waiting != nullptr) queue_.splice(queue_.end(), *waiting);
  return false;
}

void StepGate::Exit() {
  MutexLock lock(&mutex_);
  if (--inside_ == 0) changed_.NotifyAll();
}

void StepGate::Close() {
  MutexLock lock(&mutex_);
  ++closes_;
}

void StepGate::Open(Queue* freed) {
  MutexLock lock(&mutex_);
  if (--closes_ == 0) freed->splice(freed->end(), queue_);
}

bool StepGate::BeginFlip(std::chrono::steady_clock::time_point deadline,
                         int64_t* inside) {
  MutexLock lock(&mutex_);
  while ((inside_ > 0 || flipping_) && changed_.WaitUntil(&mutex_, deadline)) {
  }
  *inside = inside_;
  if (inside_ > 0 || flipping_) return false;
  flipping_ = true;
  return true;
}

void StepGate::EndFlip() {
  MutexLock lock(&mutex_);
  flipping_ = false;
  changed_.NotifyAll();
}

StepGates::StepGates(std::vector<std::shared_ptr<StepGate>> gates) {
  std::sort(gates.begin(), gates.end(), [](const auto& a, const auto& b) {
    return std::less<>()(a.get(), b.get());
  });
  gates.erase(std::unique(gates.begin(), gates.end()), gates.end());
  gates_ = std::make_shared<const Gates>(std::move(gates));
}

bool StepGates::Enter(StepGate::Queue* waiting) const {
  const Span<const std::shared_ptr<StepGate>> all = gates();
  for (int64_t i = 0; i < all.size(); ++i) {
    if (all[i]->Enter(waiting)) continue;
    while (i > 0) all[--i]->Exit();
    return false;
  }
  return true;
}

void StepGates::Exit() const {
  for (const auto& gate : gates()) gate->Exit();
}

Status StepGates::Flip(const std::function<Status()>& flip,
                       std::chrono::milliseconds at_most) const {
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  const Span<const std::shared_ptr<StepGate>> all = gates();
  // Closes all gates first, so that their steps end at the same time.
  Close();
  int64_t alone = 0;
  int64_t inside = 0;
  while (alone < all.size() && all[alone]->BeginFlip(deadline, &inside)) {
    ++alone;
  }
  Status status;
  if (alone == all.size()) {
    try {
      status = flip();
    } catch (const std::bad_alloc&) {
      // Built without allocating, because memory is short.
      status = Status(StatusCode::kResourceExhausted, "out of memory");
    }
  }
  for (int64_t i = 0; i < alone; ++i) all[i]->EndFlip();
  Open();
  if (alone == all.size()) return status;
  return FailedPrecondition(
      "found no point between two optimizer steps within ", at_most.count(),
      " ms: ", inside, " steps are still running.");
}

void StepGates::Close() const {
  for (const auto& gate : gates()) gate->Close();
}

void StepGates::Open() const {
  StepGate::Queue freed;
  for (const auto& gate : gates()) gate->Open(&freed);
  Admit(std::move(freed));
}

void StepGates::Admit(StepGate::Queue queue) {
  while (!queue.empty()) {
    StepGate::Queue one;
    one.splice(one.end(), queue, queue.begin());
    const std::shared_ptr<StepGate::Waiting> waiting = one.front();
    if (!waiting->gates.Enter(&one)) continue;
    // An exception must not leave a step inside that never runs: all later
    // flips would wait for it.
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

}  // namespace lodestar
