#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("UpdateLog")
    .Outputs("log: resource")
    .Attrs("container: string = ''", "shared_name: string = ''")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Creates an update log, or finds the one with this name.

Logs make updates of tables in several processes atomic and exactly-once, with
one log per process. An update is begun on all logs by BeginUpdate, then staged
on all by EmbeddingStage, then committed on all by CommitUpdate. After an
interrupted attempt, the next one commits on all logs the attempt that any of
them reports as committed; otherwise it stages the update again.

log: Handle of the log, which owns the staged updates.
)doc");

LODESTAR_OP("BeginUpdate")
    .Inputs("log: resource", "update: int64")
    .Outputs("attempt: int64", "committed: int64")
    .Stateful(Shapes("[], [?] -> [2], []"))
    .Doc(R"doc(
Begins an attempt at an update, and ends earlier attempts.

log: Output of UpdateLog.
update: [2]: its number, from 0, and a number below which no update will begin
  again; those updates are forgotten.
attempt: [2], for EmbeddingStage and CommitUpdate.
committed: The name of the committed attempt on this log, or 0.
FAILED_PRECONDITION if the update is forgotten, or closed by CloseUpdates.
)doc");

LODESTAR_OP("CommitUpdate")
    .Inputs("log: resource", "attempt: int64", "attempt_name: int64")
    .Stateful(ScalarOutputs({0, 1, 0}))
    .Doc(R"doc(
Applies all updates that EmbeddingStage has staged under a name, as one step,
unless an attempt is committed. A snapshot contains all of it or none.

log: Output of UpdateLog.
attempt: Output of BeginUpdate.
attempt_name: The name of this attempt, or of the one committed on another log.
CANCELLED if a later attempt has begun.
RESOURCE_EXHAUSTED if out of memory; other tables of the update are updated.
)doc");

LODESTAR_OP("CloseUpdates")
    .Inputs("log: resource", "below: int64")
    .Outputs("committed: int64")
    .Stateful(Shapes("[], [] -> [?, 2]"))
    .Doc(R"doc(
Ends all present and future attempts at some updates on this log.

log: Output of UpdateLog.
below: Updates with a smaller number are closed.
committed: [K, 2]: number and name of those committed on this log.
)doc");

LODESTAR_OP("SettleUpdates")
    .Inputs("log: resource", "committed: int64")
    .Stateful(ScalarOutputs({0, 2}))
    .Doc(R"doc(
Commits attempts at closed updates, and forgets all closed updates.

log: Output of UpdateLog.
committed: [K, 2], the outputs of CloseUpdates on all logs.
RESOURCE_EXHAUSTED if out of memory; other tables are updated.
)doc");

}  // namespace lodestar
