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
an attempt that was cut off, commits with of_earlier_attempt wherever any log
says that it is committed, and else stages anew.

log: Handle of the log, which keeps what is staged as long as it is there.
)doc");

REGISTER_OP("Lodestar>BeginUpdate")
    .Input("log: resource")
    .Input("update: int64")
    .Output("attempt: int64")
    .Output("committed: bool")
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
committed: Whether the update is committed on this log.
FAILED_PRECONDITION if the update is forgotten, or closed by CloseUpdates.
)doc");

REGISTER_OP("Lodestar>CommitUpdate")
    .Input("log: resource")
    .Input("attempt: int64")
    .Attr("of_earlier_attempt: bool = false")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1}))
    .Doc(R"doc(
Makes all that EmbeddingStage has staged of an update, as one step; nothing if it
is made. A snapshot has all of it or none.

log: That of UpdateLog.
attempt: As BeginUpdate gave it.
of_earlier_attempt: What an attempt before this one has staged.
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
      c->set_output(0, c->UnknownShapeOfRank(1));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Ends all attempts at updates that were begun on this log, also those to come.

log: That of UpdateLog.
below: Updates of a smaller number are closed.
committed: [K], those of them that are committed on this log, in ascending order.
)doc");

REGISTER_OP("Lodestar>SettleUpdates")
    .Input("log: resource")
    .Input("updates: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1}))
    .Doc(R"doc(
Commits what is staged of updates, and forgets all updates that are closed.

log: That of UpdateLog.
updates: [K], what CloseUpdates gave on any log. Others are left out.
RESOURCE_EXHAUSTED if memory runs out; other tables are updated.
)doc");

}  // namespace lodestar
