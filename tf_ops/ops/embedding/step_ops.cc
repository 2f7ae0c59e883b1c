#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>BeginStep")
    .Input("handles: num_tables * resource")
    .Output("step: variant")
    .Attr("num_tables: int >= 1")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Begins an optimizer step that consists of several ops: a snapshot, of these or
other variables, holds all of them or none. Waits for a snapshot that is being
begun, and for the disk where one holds as much as it may; no thread waits
meanwhile.

handles: The variables that the step updates; only for the order of ops.
step: A scalar, for EndStep. The step ends at the latest when this is dropped.
)doc");

REGISTER_OP("Lodestar>EndStep")
    .Input("step: variant")
    .Input("handles: num_tables * resource")
    .Input("next_steps: num_tables * int64")
    .Attr("num_tables: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Ends what BeginStep has begun, unless it has ended.

step: As BeginStep gave it.
handles: Variables whose steps move first, all of them before those of another
  EndStep do: between steps, variables that are updated together have one step.
next_steps: Scalars, as of EmbeddingApply.
)doc");

}  // namespace lodestar
