#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>SelectedRowsValidate")
    .Input("rows: int64")
    .Input("num_values: int64")
    .Input("height: int64")
    .Output("validated: int64")
    // A check, which no graph optimizer may drop.
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle rows;
      TF_RETURN_IF_ERROR(CheckRanks(c, {kAnyRank, 0, 0}));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &rows));
      c->set_output(0, rows);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Passes the rows that values are of on, if they are rows.

rows: A vector.
num_values: How many values there are, a scalar.
height: How many rows there are, a scalar.
validated: The same buffer.
INVALID_ARGUMENT, naming index and value, if there are more or fewer rows than
values, the height is negative, or a row is outside of [0, height).
)doc");

}  // namespace lodestar
