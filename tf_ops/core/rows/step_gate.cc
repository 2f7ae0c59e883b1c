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
  std::lock_guard<std::mutex> lock(mutex_);
  if (!CanEnter()) return false;
  ++inside_;
  return true;
}

void StepGate::Enter(std::function<void()> entered) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!CanEnter()) {
      waiting_.push_back(std::move(entered));
      return;
    }
    ++inside_;
  }
  entered();
}

void StepGate::Exit() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (--inside_ == 0) changed_.notify_all();
}

Status StepGate::Flip(const std::function<Status()>& flip,
                      std::chrono::milliseconds at_most) {
  std::unique_lock<std::mutex> lock(mutex_);
  ++flips_;
  const bool alone = changed_.wait_for(
      lock, at_most, [this] { return inside_ == 0 && !flipping_; });
  const int64_t inside = inside_;
  Status status;
  if (alone) {
    flipping_ = true;
    lock.unlock();
    try {
      status = flip();
    } catch (const std::bad_alloc&) {
      // So short that it needs no memory itself.
      status = Status(StatusCode::kResourceExhausted, "out of memory");
    }
    lock.lock();
    flipping_ = false;
    changed_.notify_all();
  }
  --flips_;
  LetIn(std::move(lock));
  if (alone) return status;
  return FailedPrecondition(
      "a snapshot found no moment between two optimizer steps for ",
      at_most.count(), " ms: ", inside, " were under way all the time");
}

void StepGate::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++closes_;
}

void StepGate::Open() {
  std::unique_lock<std::mutex> lock(mutex_);
  --closes_;
  LetIn(std::move(lock));
}

void StepGate::LetIn(std::unique_lock<std::mutex> lock) {
  if (!CanEnter()) return;
  std::vector<std::function<void()>> entered;
  entered.swap(waiting_);
  inside_ += static_cast<int64_t>(entered.size());
  lock.unlock();
  for (const std::function<void()>& call : entered) call();
}

void StepStay::End() {
  StepGate* gate = gate_.exchange(nullptr);
  if (gate != nullptr) gate->Exit();
}

}  // namespace lodestar
