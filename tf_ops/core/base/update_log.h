// UpdateLog: updates of several processes, each made whole and once.
//
// An update writes to tables of several processes; each of these has a log. Who
// makes the update, a worker, calls on all logs
//
//   Begin            which shuts out the attempts before this one
//   Stage ... Stage  what to write; nothing is written yet
//   Commit           which writes it
//
// and goes to the next line when all logs have answered. If the worker is lost,
// another one begins the next attempt. Where a log answers that the update is
// committed, every log had all of it staged, and Finish commits it on the
// others; else what was staged is replaced. This is two-phase commit, of which
// the next attempt is the recovery.
//
// Where there is no next attempt, who has had the updates made calls on all
// logs
//
//   Close            which shuts out all attempts, and says what is committed
//   Settle           which commits that, and forgets the rest

#ifndef LODESTAR_TF_OPS_CORE_BASE_UPDATE_LOG_H_
#define LODESTAR_TF_OPS_CORE_BASE_UPDATE_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

// Any thread may call any method.
class UpdateLog {
 public:
  using Write = std::function<Status(const ParallelFor*)>;

  // Which one at which update.
  struct Attempt {
    int64_t update = 0;
    int64_t number = 0;
  };

  UpdateLog() = default;
  UpdateLog(const UpdateLog&) = delete;
  UpdateLog& operator=(const UpdateLog&) = delete;

  // Begins the next attempt at an update. committed: it needs no other. Updates
  // below `finished` are not asked for again and forgotten.
  // FailedPrecondition: one of those, or closed.
  Status Begin(int64_t update, int64_t finished, Attempt* attempt,
               bool* committed);
  // False: a later one has begun, or the update is closed or forgotten; so it
  // will stay.
  bool IsLast(const Attempt& attempt) const;
  // Keeps what the attempt is to write, behind what it has staged before.
  // FailedPrecondition: the attempt is not the last one, or committed.
  Status Stage(const Attempt& attempt, Write write);
  // Makes the writes in the order in which they were staged, and returns the
  // first error; nothing if the update is committed, but that it waits for the
  // end of writes that are under way.
  // FailedPrecondition: the attempt is not the last one.
  Status Commit(const Attempt& attempt, const ParallelFor* parallel);
  // Commits what an attempt before this one has staged.
  Status Finish(const Attempt& attempt, const ParallelFor* parallel);

  // Shuts out all attempts at updates below `below`, also those to come, and
  // returns which of these are committed.
  std::vector<int64_t> Close(int64_t below);
  // Commits what is staged of `updates`; then, as after the end of writes that
  // are under way, forgets all that are closed. Returns the first error.
  Status Settle(Span<const int64_t> updates, const ParallelFor* parallel);

  // Updates that are not forgotten.
  int64_t size() const;

 private:
  enum class State { kOpen, kWriting, kCommitted };
  struct Update {
    int64_t last_attempt = 0;
    int64_t staged_by = 0;
    State state = State::kOpen;
    std::vector<Write> staged;
  };

  // Null: as IsLast.
  Update* Find(const Attempt& attempt) LODESTAR_REQUIRES(mutex_);
  Status CommitStaged(const Attempt& attempt, bool own,
                      const ParallelFor* parallel);
  // Makes the writes of an update that is being written.
  Status Make(int64_t update, const std::vector<Write>& writes,
              const ParallelFor* parallel);
  bool IsBeingWritten(int64_t update) const LODESTAR_REQUIRES(mutex_);

  mutable Mutex mutex_;
  ConditionVariable written_;
  // Updates below are begun no more.
  int64_t closed_ LODESTAR_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Update> updates_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_UPDATE_LOG_H_
