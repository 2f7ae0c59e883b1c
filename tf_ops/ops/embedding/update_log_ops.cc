#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>UpdateLog")
    .Output("log: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Creates a log of updates, or finds the one of this name.

Updates of tables in several processes are made whole and once with a log in
each. An update is begun on all logs by BeginUpdate, then staged on all by
EmbeddingStage, then committed on all by CommitUpdate. Who begins it again, after
an attempt that was cut off, commits on all logs the attempt that any of them
says is committed, and else stages anew.

log: Handle of the log, which keeps what is staged as long as it is there.
)doc");

REGISTER_OP("Lodestar>BeginUpdate")
    .Input("log: resource")
    .Input("update: int64")
    .Output("attempt: int64")
    .Output("committed: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0, 1}));
      c->set_output(0, c->Vector(2));
      c->set_output(1, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Begins an attempt at an update, of which the ones before are then over.

log: That of UpdateLog.
update: [2]: its number, counted from 0, and a number below which no update is
  begun again; those are forgotten.
attempt: [2], for EmbeddingStage and CommitUpdate.
committed: The name of the attempt that is committed on this log, 0 if none is.
FAILED_PRECONDITION if the update is forgotten, or closed by CloseUpdates.
)doc");

REGISTER_OP("Lodestar>CommitUpdate")
    .Input("log: resource")
    .Input("attempt: int64")
    .Input("attempt_name: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1, 0}))
    .Doc(R"doc(
Makes all that EmbeddingStage has staged by a name, as one step; nothing if an
attempt is committed. A snapshot has all of it or none.

log: That of UpdateLog.
attempt: As BeginUpdate gave it.
attempt_name: Of this attempt, or of the one that is committed on another log.
CANCELLED if a later attempt has begun.
RESOURCE_EXHAUSTED if memory runs out; other tables of the update are updated.
)doc");

REGISTER_OP("Lodestar>CloseUpdates")
    .Input("log: resource")
    .Input("below: int64")
    .Output("committed: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0, 0}));
      c->set_output(0, c->Matrix(c->UnknownDim(), 2));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Ends all attempts at updates that were begun on this log, also those to come.

log: That of UpdateLog.
below: Updates of a smaller number are closed.
committed: [K, 2]: number and name of those that are committed on this log.
)doc");

REGISTER_OP("Lodestar>SettleUpdates")
    .Input("log: resource")
    .Input("committed: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 2}))
    .Doc(R"doc(
Commits attempts at updates that are closed, and forgets all that are closed.

log: That of UpdateLog.
committed: [K, 2], all that CloseUpdates gave on any log.
RESOURCE_EXHAUSTED if memory runs out; other tables are updated.
)doc");

}  // namespace lodestar
