#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>BeginUpdate")
    .Input("run: int64")
    .Input("update: int64")
    .Input("finished: int64")
    .Output("attempt: int64")
    .Output("committed: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0, 0, 0}));
      c->set_output(0, c->Scalar());
      c->set_output(1, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Begins an attempt at an update of tables in several processes, in one of them.

An update is begun in all of them, then staged in all by EmbeddingStage, then
committed in all by CommitUpdate. Who begins it again, after an attempt that was
cut off, commits with of_earlier_attempt wherever any process says that it is
committed, and else stages anew. So it is written whole and once.

run: A scalar, as all of these; a number of its own for each run of a training.
  The first update of a run forgets all of the run before.
update: Its number in the run.
finished: No update below this is begun again; they are forgotten.
attempt: For EmbeddingStage and CommitUpdate; attempts before it are over.
committed: Whether this process has committed the update.
FAILED_PRECONDITION if the update or the run is forgotten.
)doc");

REGISTER_OP("Lodestar>CommitUpdate")
    .Input("run: int64")
    .Input("update: int64")
    .Input("attempt: int64")
    .Attr("of_earlier_attempt: bool = false")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 0, 0}))
    .Doc(R"doc(
Makes all updates that EmbeddingStage has staged, as one step; nothing if they
are made. A snapshot has all of them or none.

run, update, attempt: Scalars, as BeginUpdate took and gave them.
of_earlier_attempt: What an attempt before this one has staged.
FAILED_PRECONDITION if a later attempt, or another run, has begun.
RESOURCE_EXHAUSTED if memory runs out; other tables of the update are updated.
)doc");

}  // namespace lodestar
