#include "tf_ops/core/steps/update_log.h"

#include <algorithm>
#include <new>
#include <utility>

namespace lodestar {
namespace {

Status Superseded(const UpdateLog::Attempt& attempt) {
  return FailedPrecondition("attempt ", attempt.number, " at update ",
                            attempt.update,
                            " is superseded: a later attempt has begun.");
}

}  // namespace

Status UpdateLog::Begin(int64_t update, int64_t finished, Attempt* attempt,
                        int64_t* committed) {
  // Staged gradients may be large, so they are freed after the mutex is
  // released.
  std::map<int64_t, Update> forgotten;
  MutexLock lock(&mutex_);
  while (!updates_.empty() && updates_.begin()->first < finished) {
    forgotten.insert(updates_.extract(updates_.begin()));
  }
  closed_ = std::max(closed_, finished);
  if (update < closed_) {
    return FailedPrecondition("update ", update,
                              " is finished, like all updates below ", closed_,
                              ".");
  }
  Update& begun = updates_[update];
  *attempt = {update, ++begun.last_attempt};
  *committed = begun.committed;
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

Status UpdateLog::Stage(const Attempt& attempt, int64_t name,
                        std::shared_ptr<StepGate> gate, Write write) {
  MutexLock lock(&mutex_);
  Update* const update = Find(attempt);
  if (update == nullptr) return Superseded(attempt);
  if (update->committed != 0) {
    return FailedPrecondition("update ", attempt.update,
                              " is already committed.");
  }
  update->staged[name].push_back({std::move(gate), std::move(write)});
  return Status();
}

StepGates UpdateLog::GatesOf(const std::vector<Committed>& attempts) const {
  std::vector<std::shared_ptr<StepGate>> gates;
  MutexLock lock(&mutex_);
  for (const Committed& attempt : attempts) {
    const auto update = updates_.find(attempt.update);
    if (update == updates_.end()) continue;
    const auto staged = update->second.staged.find(attempt.name);
    if (staged == update->second.staged.end()) continue;
    for (const StagedWrite& write : staged->second) gates.push_back(write.gate);
  }
  return StepGates(std::move(gates));
}

Status UpdateLog::Commit(const Attempt& attempt, int64_t name,
                         const ParallelFor* parallel) {
  Writes writes;
  {
    MutexLock lock(&mutex_);
    Update* const update = Find(attempt);
    if (update == nullptr) return Superseded(attempt);
    if (update->committed != 0) {
      while (IsBeingWritten(attempt.update)) written_.Wait(&mutex_);
      return Status();
    }
    writes = MarkCommitted(name, update);
  }
  return RunWrites(attempt.update, writes, parallel);
}

UpdateLog::Writes UpdateLog::MarkCommitted(int64_t name, Update* update) {
  update->committed = name;
  // Set before the writes run, so that a concurrent attempt does not run them
  // again.
  update->is_being_written = true;
  return std::move(update->staged[name]);
}

Status UpdateLog::RunWrites(int64_t update, const Writes& writes,
                            const ParallelFor* parallel) {
  Status first;
  for (const StagedWrite& staged : writes) {
    Status status;
    try {
      status = staged.write(parallel);
    } catch (const std::bad_alloc&) {
      status = ResourceExhausted("out of memory.");
    }
    if (first.ok()) first = status;
  }
  // Writes that other attempts have staged.
  std::map<int64_t, Writes> forgotten;
  MutexLock lock(&mutex_);
  const auto found = updates_.find(update);
  if (found != updates_.end()) {
    found->second.is_being_written = false;
    forgotten.swap(found->second.staged);
  }
  written_.NotifyAll();
  return first;
}

bool UpdateLog::IsBeingWritten(int64_t update) const {
  const auto found = updates_.find(update);
  return found != updates_.end() && found->second.is_being_written;
}

std::vector<UpdateLog::Committed> UpdateLog::Close(int64_t below) {
  std::vector<Committed> committed;
  MutexLock lock(&mutex_);
  closed_ = std::max(closed_, below);
  for (auto& [number, update] : updates_) {
    if (number >= closed_) break;
    ++update.last_attempt;
    if (update.committed != 0) committed.push_back({number, update.committed});
  }
  return committed;
}

Status UpdateLog::Settle(const std::vector<Committed>& attempts,
                         const ParallelFor* parallel) {
  Status first;
  for (const Committed& attempt : attempts) {
    Writes writes;
    {
      MutexLock lock(&mutex_);
      const auto found = updates_.find(attempt.update);
      if (attempt.update >= closed_ || found == updates_.end() ||
          found->second.committed != 0) {
        continue;
      }
      writes = MarkCommitted(attempt.name, &found->second);
    }
    const Status status = RunWrites(attempt.update, writes, parallel);
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
