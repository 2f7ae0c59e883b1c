#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
LODESTAR_OP("LodValidate")
    .Inputs("num_rows: int64", "levels: num_levels * int64")
    .Outputs("validated: num_levels * int64")
    .Attrs("num_levels: int >= 1")
    // Not stateful: iterators of data sets whose functions contain stateful ops
    // have no checkpoints. Callers use the outputs, so the check is not
    // dropped.
    .Stateless([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
      for (int k = 0; k < c->num_outputs(); ++k) {
        ShapeHandle level;
        TF_RETURN_IF_ERROR(c->WithRank(c->input(1 + k), 1, &level));
        c->set_output(k, level);
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Validates offset levels and passes them on.

num_rows: N, the number of rows of the last level.
levels: Offsets, outermost level first; level k indexes level k + 1.
validated: The same buffers.
INVALID_ARGUMENT, with level and index, if a level does not start at 0,
decreases, or does not end at the number of units of the next level (N for the
last one).
)doc");

}  // namespace lodestar
