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
// another one begins the next attempt. Where a log answers that an attempt is
// committed, every log had all of it staged, and the next attempt commits that
// one on the others; else it stages anew. This is two-phase commit, of which
// the next attempt is the recovery. Attempts may meet in other orders on other
// logs: so what is staged is known by a name that is the same on all of them.
// Of two attempts, one finds itself shut out on some log before it has staged
// on all.
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
#include "tf_ops/core/base/status.h"

namespace lodestar {

// Any thread may call any method.
class UpdateLog {
 public:
  using Write = std::function<Status(const ParallelFor*)>;

  // The number that this log has given to an attempt.
  struct Attempt {
    int64_t update = 0;
    int64_t number = 0;
  };
  // The attempt at an update that is committed, by its name.
  struct Committed {
    int64_t update = 0;
    int64_t name = 0;
  };

  UpdateLog() = default;
  UpdateLog(const UpdateLog&) = delete;
  UpdateLog& operator=(const UpdateLog&) = delete;

  // Begins the next attempt at an update. committed: the name of the one that
  // is, 0 if none is. Updates below `finished` are not asked for again and
  // forgotten.
  // FailedPrecondition: one of those, or closed.
  Status Begin(int64_t update, int64_t finished, Attempt* attempt,
               int64_t* committed);
  // False: a later one has begun, or the update is closed or forgotten; so it
  // will stay.
  bool IsLast(const Attempt& attempt) const;
  // Keeps what the attempt is to write, behind what it has staged before. Its
  // name, above 0, is another one than those of other attempts.
  // FailedPrecondition: the attempt is not the last one, or one is committed.
  Status Stage(const Attempt& attempt, int64_t name, Write write);
  // Makes the writes that were staged by the name, of this attempt or one
  // before it, in their order, and returns the first error; nothing if one is
  // committed, but that it waits for the end of writes that are under way.
  // FailedPrecondition: the attempt is not the last one.
  Status Commit(const Attempt& attempt, int64_t name,
                const ParallelFor* parallel);

  // Shuts out all attempts at updates below `below`, also those to come, and
  // returns which are committed.
  std::vector<Committed> Close(int64_t below);
  // Commits attempts, of those that are closed; then, and after the end of
  // writes that are under way, forgets all that are closed. Returns the first
  // error.
  Status Settle(const std::vector<Committed>& attempts,
                const ParallelFor* parallel);

  // Updates that are not forgotten.
  int64_t size() const;

 private:
  using Writes = std::vector<Write>;
  struct Update {
    int64_t last_attempt = 0;
    int64_t committed = 0;
    bool is_being_written = false;
    std::map<int64_t, Writes> staged;  // by name
  };

  // Null: as IsLast.
  Update* Find(const Attempt& attempt) LODESTAR_REQUIRES(mutex_);
  // The writes of an attempt, which is committed from here on.
  static Writes Take(int64_t name, Update* update);
  // Makes the writes that were taken.
  Status Make(int64_t update, const Writes& writes,
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
