#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
LODESTAR_OP("SequenceContext")
    .Inputs("values: T", "row_splits: int64", "pad_value: T")
    .Outputs("windows: T")
    .Attrs(kNumberAttr, "start: int", "size: int >= 1")
    .Stateless(Shapes("[n, ...x], [?], [] -> [n, @size, ...x]"))
    .Doc(R"doc(
Returns a window of rows around each row, within its sequence.

values: [N, ...].
row_splits: [B + 1]; sequence b is rows [row_splits[b], row_splits[b + 1]).
pad_value: A scalar.
windows: [N, size, ...]. windows[r, j] is values[r + start + j], or pad_value if
  that row is not in the sequence of r.
start: Between -2^60 and 2^60.
INVALID_ARGUMENT if the splits do not start at 0, decrease or do not end at N.
)doc");

LODESTAR_OP("SequenceContextGradient")
    .Inputs("gradient: T", "row_splits: int64")
    .Outputs("values_gradient: T")
    .Attrs(kFloatAttr, "start: int", "size: int >= 1")
    .Stateless(Shapes("[n, @size, ...x], [?] -> [n, ...x]"))
    .Doc(R"doc(
Computes the gradient of SequenceContext for its values.

gradient: [N, size, ...], of the windows.
row_splits: [B + 1].
values_gradient: [N, ...]. 16-bit floats are summed in float32.
INVALID_ARGUMENT if the splits are invalid or the gradient has another shape.
)doc");

}  // namespace lodestar
