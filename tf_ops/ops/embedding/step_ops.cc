#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("BeginStep")
    .Inputs("handles: num_tables * resource")
    .Outputs("step: variant")
    .Attrs("num_tables: int >= 1")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Begins an optimizer step that consists of several ops. A snapshot of any of the
variables contains all of them or none. Waits, without blocking a thread, for a
snapshot of these variables that is starting, and for the disk if such a
snapshot has reached its memory limit.

handles: All variables that the step updates.
step: A scalar, for EndStep. Dropping it ends the step.
)doc");

LODESTAR_OP("EndStep")
    .Inputs("step: variant", "handles: num_tables * resource",
            "next_steps: num_tables * int64")
    .Attrs("num_tables: int >= 0 = 0")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Ends a step of BeginStep, unless it has ended.

step: Output of BeginStep.
handles: Variables whose steps advance first, all of them before the steps of
  another EndStep. So between steps, variables that are updated together have
  the same step.
next_steps: Scalars, as for EmbeddingApply.
)doc");

}  // namespace lodestar
