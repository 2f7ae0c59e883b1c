// UpdateLog: atomic, exactly-once updates of tables in several processes.
//
// An update writes to tables in several processes, and each process has a log.
// The worker that makes the update calls the following methods, each on all
// logs before the next:
//
//   Begin            supersedes the earlier attempts at this update
//   Stage ... Stage  what to write; nothing is written yet
//   Commit           writes it
//
// If the worker is lost, another worker begins the next attempt. If any log
// reports a committed attempt, then every log has staged all of it, and the new
// attempt commits it on the other logs. Otherwise the new attempt stages its
// own writes. This is two-phase commit, with the next attempt as the recovery.
// Logs may see attempts in different orders, so staged writes are identified by
// a name that is the same on all logs. If two attempts run concurrently, at
// least one is superseded on some log before it has staged on all.
//
// If there is no next attempt, the coordinator ends the updates by calling, on
// all logs:
//
//   Close            supersedes all attempts and returns the committed ones
//   Settle           commits those and forgets the rest

#ifndef LODESTAR_TF_OPS_CORE_STEPS_UPDATE_LOG_H_
#define LODESTAR_TF_OPS_CORE_STEPS_UPDATE_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/base/step_gate.h"

namespace lodestar {

// Thread-safe.
class UpdateLog {
 public:
  using Write = std::function<Status(const ParallelFor*)>;

  // The number that this log assigned to an attempt.
  struct Attempt {
    int64_t update = 0;
    int64_t number = 0;
  };
  // The name of the committed attempt at an update.
  struct Committed {
    int64_t update = 0;
    int64_t name = 0;
  };

  UpdateLog() = default;
  UpdateLog(const UpdateLog&) = delete;
  UpdateLog& operator=(const UpdateLog&) = delete;

  // Begins the next attempt at an update. `committed` is the name of the
  // committed attempt, or 0. Forgets updates below `finished`, which must not
  // be requested again. Returns FailedPrecondition if the update is finished or
  // closed.
  Status Begin(int64_t update, int64_t finished, Attempt* attempt,
               int64_t* committed);
  // Returns false once a later attempt has begun or the update is closed or
  // forgotten. A false result is final.
  bool IsLast(const Attempt& attempt) const;
  // Appends a write to those that the attempt has staged. `name` must be
  // positive and unique among all attempts, and `gate` is that of the written
  // table. Returns FailedPrecondition if the attempt is superseded or another
  // one is committed.
  Status Stage(const Attempt& attempt, int64_t name,
               std::shared_ptr<StepGate> gate, Write write);
  // Returns the gates of all writes staged by these attempts, which no one has
  // committed yet. Enter them before Commit or Settle. An attempt that may be
  // committed stages no more writes.
  StepGates GatesOf(const std::vector<Committed>& attempts) const;
  // Runs the writes staged under `name`, by this attempt or an earlier one, in
  // order, and returns the first error. If an attempt is already committed,
  // only waits for its writes to finish. Returns FailedPrecondition if the
  // attempt is superseded.
  Status Commit(const Attempt& attempt, int64_t name,
                const ParallelFor* parallel);

  // Supersedes all present and future attempts at updates below `below`, and
  // returns the committed ones.
  std::vector<Committed> Close(int64_t below);
  // Commits the given attempts at closed updates. Then waits for running writes
  // and forgets all closed updates. Returns the first error.
  Status Settle(const std::vector<Committed>& attempts,
                const ParallelFor* parallel);

  // Number of updates that are not forgotten.
  int64_t size() const;

 private:
  struct StagedWrite {
    std::shared_ptr<StepGate> gate;
    Write write;
  };
  using Writes = std::vector<StagedWrite>;
  struct Update {
    int64_t last_attempt = 0;
    int64_t committed = 0;
    bool is_being_written = false;
    std::map<int64_t, Writes> staged;  // by name
  };

  // Returns null under the conditions of IsLast.
  Update* Find(const Attempt& attempt) LODESTAR_REQUIRES(mutex_);
  // Marks the attempt as committed and returns its writes.
  static Writes MarkCommitted(int64_t name, Update* update);
  // Runs the writes of a committed attempt.
  Status RunWrites(int64_t update, const Writes& writes,
                   const ParallelFor* parallel);
  bool IsBeingWritten(int64_t update) const LODESTAR_REQUIRES(mutex_);

  mutable Mutex mutex_;
  ConditionVariable written_;
  // Updates below this number can no longer begin.
  int64_t closed_ LODESTAR_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Update> updates_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_STEPS_UPDATE_LOG_H_
