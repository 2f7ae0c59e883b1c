#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("SelectedRowsValidate")
    .Inputs("rows: int64", "num_values: int64", "height: int64")
    .Outputs("validated: int64")
    // A check, which graph optimizers must not drop.
    .Stateful(Shapes("[n], [], [] -> [n]"))
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
