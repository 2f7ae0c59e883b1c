#include "tf_ops/core/base/update_log.h"

#include <algorithm>
#include <utility>

namespace lodestar {
namespace {

Status Superseded(const UpdateLog::Attempt& attempt) {
  return FailedPrecondition("attempt ", attempt.number, " at update ",
                            attempt.update, " of run ", attempt.run,
                            " is over: a later one has begun, or another run");
}

}  // namespace

UpdateLog& UpdateLog::Global() {
  static UpdateLog* const log = new UpdateLog;
  return *log;
}

Status UpdateLog::Begin(int64_t run, int64_t update, int64_t finished,
                        int64_t* number, bool* committed) {
  // Staged gradients may be large: they go when the mutex is given back.
  std::map<int64_t, Update> forgotten;
  MutexLock lock(&mutex_);
  if (!any_run_ || run != run_) {
    if (std::count(past_runs_.begin(), past_runs_.end(), run) > 0) {
      return FailedPrecondition("run ", run, " is over: run ", run_,
                                " has begun after it");
    }
    if (any_run_) past_runs_.push_back(run_);
    any_run_ = true;
    run_ = run;
    finished_ = 0;
    forgotten.swap(updates_);
  }
  finished_ = std::max(finished_, finished);
  while (!updates_.empty() && updates_.begin()->first < finished_) {
    forgotten.insert(updates_.extract(updates_.begin()));
  }
  if (update < finished_) {
    return FailedPrecondition("update ", update, " of run ", run,
                              " is finished, as are all below ", finished_);
  }
  Update& begun = updates_[update];
  *number = ++begun.last_attempt;
  *committed = begun.committed;
  return Status();
}

Status UpdateLog::Find(const Attempt& attempt, Update** update) {
  const auto found = updates_.find(attempt.update);
  if (!any_run_ || attempt.run != run_ || found == updates_.end() ||
      found->second.last_attempt != attempt.number) {
    return Superseded(attempt);
  }
  *update = &found->second;
  return Status();
}

Status UpdateLog::Stage(const Attempt& attempt, Write write) {
  std::vector<Write> replaced;
  MutexLock lock(&mutex_);
  Update* update = nullptr;
  LODESTAR_RETURN_IF_ERROR(Find(attempt, &update));
  if (update->committed) {
    return FailedPrecondition("update ", attempt.update, " of run ",
                              attempt.run, " is committed");
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
    Update* update = nullptr;
    LODESTAR_RETURN_IF_ERROR(Find(attempt, &update));
    if (update->committed) return Status();
    if (own && update->staged_by != attempt.number) update->staged.clear();
    // Before the writes: an attempt that begins meanwhile must not write again.
    update->committed = true;
    writes.swap(update->staged);
  }
  Status first;
  for (const Write& write : writes) {
    const Status status = write(parallel);
    if (first.ok()) first = status;
  }
  return first;
}

int64_t UpdateLog::size() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(updates_.size());
}

}  // namespace lodestar
