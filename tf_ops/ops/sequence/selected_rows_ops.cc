#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>SelectedRowsValidate")
    .Input("rows: int64")
    .Input("num_values: int64")
    .Input("height: int64")
    .Output("validated: int64")
    // A check, which graph optimizers must not drop.
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle rows;
      TF_RETURN_IF_ERROR(CheckRanks(c, {kAnyRank, 0, 0}));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &rows));
      c->set_output(0, rows);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Validates the row indices of selected rows and passes them on.

rows: A vector.
num_values: The number of values, a scalar.
height: The number of rows, a scalar.
validated: The same buffer.
INVALID_ARGUMENT, with index and value, if the numbers of rows and values
differ, the height is negative, or a row is not in [0, height).
)doc");

}  // namespace lodestar
