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

  // Which attempt at which update; updates count from 0 in a run.
  struct Attempt {
    int64_t run = 0;
    int64_t update = 0;
    int64_t number = 0;
  };

  UpdateLog() = default;
  UpdateLog(const UpdateLog&) = delete;
  UpdateLog& operator=(const UpdateLog&) = delete;

  // That of all tables of the process.
  static UpdateLog& Global();

  // Begins the next attempt at an update, and gives its number. committed: it
  // needs no other. Updates below `finished` are not asked for again and
  // forgotten. The first Begin of another run forgets all of the run before.
  // FailedPrecondition: a forgotten update, or run.
  Status Begin(int64_t run, int64_t update, int64_t finished, int64_t* number,
               bool* committed);
  // Keeps what the attempt is to write, behind what it has staged before.
  // FailedPrecondition: the attempt is not the last one, or committed.
  Status Stage(const Attempt& attempt, Write write);
  // Makes the writes in the order in which they were staged, and returns the
  // first error; nothing if the update is committed.
  // FailedPrecondition: the attempt is not the last one.
  Status Commit(const Attempt& attempt, const ParallelFor* parallel);
  // Commits what an attempt before this one has staged.
  Status Finish(const Attempt& attempt, const ParallelFor* parallel);

  // Updates that are not forgotten.
  int64_t size() const;

 private:
  struct Update {
    int64_t last_attempt = 0;
    int64_t staged_by = 0;
    bool committed = false;
    std::vector<Write> staged;
  };

  // The update of an attempt that is the last one.
  Status Find(const Attempt& attempt, Update** update)
      LODESTAR_REQUIRES(mutex_);
  Status CommitStaged(const Attempt& attempt, bool own,
                      const ParallelFor* parallel);

  mutable Mutex mutex_;
  int64_t run_ LODESTAR_GUARDED_BY(mutex_) = 0;
  bool any_run_ LODESTAR_GUARDED_BY(mutex_) = false;
  // Runs that are over.
  std::vector<int64_t> past_runs_ LODESTAR_GUARDED_BY(mutex_);
  int64_t finished_ LODESTAR_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Update> updates_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_UPDATE_LOG_H_
