#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>BeginStep")
    .Input("handles: num_tables * resource")
    .Output("step: variant")
    .Attr("num_tables: int >= 1")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Begins an optimizer step that consists of several ops. A snapshot of any of the
variables contains all of them or none. Waits, without blocking a thread, for a
snapshot of these variables that is starting, and for the disk if such a
snapshot has reached its memory limit.

handles: All variables that the step updates.
step: A scalar, for EndStep. Dropping it ends the step.
)doc");

REGISTER_OP("Lodestar>EndStep")
    .Input("step: variant")
    .Input("handles: num_tables * resource")
    .Input("next_steps: num_tables * int64")
    .Attr("num_tables: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Ends a step of BeginStep, unless it has ended.

step: Output of BeginStep.
handles: Variables whose steps advance first, all of them before the steps of
  another EndStep. So between steps, variables that are updated together have
  the same step.
next_steps: Scalars, as for EmbeddingApply.
)doc");

}  // namespace lodestar
