#include "tf_ops/core/base/update_log.h"

#include <algorithm>
#include <new>
#include <utility>

namespace lodestar {
namespace {

Status Superseded(const UpdateLog::Attempt& attempt) {
  return FailedPrecondition("attempt ", attempt.number, " at update ",
                            attempt.update, " is over: a later one has begun");
}

}  // namespace

Status UpdateLog::Begin(int64_t update, int64_t finished, Attempt* attempt,
                        bool* committed) {
  // Staged gradients may be large: they go when the mutex is given back.
  std::map<int64_t, Update> forgotten;
  MutexLock lock(&mutex_);
  while (!updates_.empty() && updates_.begin()->first < finished) {
    forgotten.insert(updates_.extract(updates_.begin()));
  }
  closed_ = std::max(closed_, finished);
  if (update < closed_) {
    return FailedPrecondition("update ", update,
                              " is finished, as are all below ", closed_);
  }
  Update& begun = updates_[update];
  *attempt = {update, ++begun.last_attempt};
  *committed = begun.state != State::kOpen;
  return Status();
}

UpdateLog::Update* UpdateLog::Find(const Attempt& attempt) {
  const auto found = updates_.find(attempt.update);
  if (found == updates_.end() || found->second.last_attempt != attempt.number) {
    return nullptr;
  }
  return &found->second;
}

bool UpdateLog::IsLast(const Attempt& attempt) const {
  MutexLock lock(&mutex_);
  const auto found = updates_.find(attempt.update);
  return found != updates_.end() &&
         found->second.last_attempt == attempt.number;
}

Status UpdateLog::Stage(const Attempt& attempt, Write write) {
  std::vector<Write> replaced;
  MutexLock lock(&mutex_);
  Update* const update = Find(attempt);
  if (update == nullptr) return Superseded(attempt);
  if (update->state != State::kOpen) {
    return FailedPrecondition("update ", attempt.update, " is committed");
  }
  if (update->staged_by != attempt.number) {
    replaced.swap(update->staged);
    update->staged_by = attempt.number;
  }
  update->staged.push_back(std::move(write));
  return Status();
}

Status UpdateLog::Commit(const Attempt& attempt, const ParallelFor* parallel) {
  return CommitStaged(attempt, /*own=*/true, parallel);
}

Status UpdateLog::Finish(const Attempt& attempt, const ParallelFor* parallel) {
  return CommitStaged(attempt, /*own=*/false, parallel);
}

Status UpdateLog::CommitStaged(const Attempt& attempt, bool own,
                               const ParallelFor* parallel) {
  std::vector<Write> writes;
  {
    MutexLock lock(&mutex_);
    Update* const update = Find(attempt);
    if (update == nullptr) return Superseded(attempt);
    if (update->state != State::kOpen) {
      while (IsBeingWritten(attempt.update)) written_.Wait(&mutex_);
      return Status();
    }
    if (own && update->staged_by != attempt.number) update->staged.clear();
    // An attempt that begins meanwhile must not write again.
    update->state = State::kWriting;
    writes.swap(update->staged);
  }
  return Make(attempt.update, writes, parallel);
}

Status UpdateLog::Make(int64_t update, const std::vector<Write>& writes,
                       const ParallelFor* parallel) {
  Status first;
  for (const Write& write : writes) {
    Status status;
    try {
      status = write(parallel);
    } catch (const std::bad_alloc&) {
      status = ResourceExhausted("out of memory");
    }
    if (first.ok()) first = status;
  }
  MutexLock lock(&mutex_);
  const auto found = updates_.find(update);
  if (found != updates_.end()) found->second.state = State::kCommitted;
  written_.NotifyAll();
  return first;
}

bool UpdateLog::IsBeingWritten(int64_t update) const {
  const auto found = updates_.find(update);
  return found != updates_.end() && found->second.state == State::kWriting;
}

std::vector<int64_t> UpdateLog::Close(int64_t below) {
  std::vector<int64_t> committed;
  MutexLock lock(&mutex_);
  closed_ = std::max(closed_, below);
  for (auto& [number, update] : updates_) {
    if (number >= closed_) break;
    ++update.last_attempt;
    if (update.state != State::kOpen) committed.push_back(number);
  }
  return committed;
}

Status UpdateLog::Settle(Span<const int64_t> updates,
                         const ParallelFor* parallel) {
  Status first;
  for (const int64_t number : updates) {
    std::vector<Write> writes;
    {
      MutexLock lock(&mutex_);
      const auto found = updates_.find(number);
      if (number >= closed_ || found == updates_.end() ||
          found->second.state != State::kOpen) {
        continue;
      }
      found->second.state = State::kWriting;
      writes.swap(found->second.staged);
    }
    const Status status = Make(number, writes, parallel);
    if (first.ok()) first = status;
  }
  std::map<int64_t, Update> forgotten;
  MutexLock lock(&mutex_);
  while (!updates_.empty() && updates_.begin()->first < closed_) {
    const int64_t number = updates_.begin()->first;
    if (IsBeingWritten(number)) {
      written_.Wait(&mutex_);
    } else {
      forgotten.insert(updates_.extract(updates_.begin()));
    }
  }
  return first;
}

int64_t UpdateLog::size() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(updates_.size());
}

}  // namespace lodestar
