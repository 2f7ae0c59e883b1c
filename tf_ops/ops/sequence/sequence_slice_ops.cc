#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
LODESTAR_OP("SequenceSlice")
    .Inputs("values: T", "row_splits: int64", "offset: int64", "length: int64")
    .Outputs("rows: T", "sliced_splits: int64")
    .Attrs(kMovedAttr)
    .Stateless(Shapes("[?, ...x], [b + 1], [b], [b] -> [?, ...x], [b + 1]"))
    .Doc(R"doc(
Slices each sequence.

values: [N, ...].
row_splits: [B + 1]; sequence b is rows [row_splits[b], row_splits[b + 1]).
offset: [B], the first row of each slice, relative to its sequence.
length: [B], the number of rows of each slice.
rows: [sum of length, ...].
sliced_splits: [B + 1].
INVALID_ARGUMENT if the splits do not start at 0, decrease or do not end at N,
or if a slice is out of range or has a negative length.
)doc");

LODESTAR_OP("SequenceSliceGradient")
    .Inputs("gradient: T", "row_splits: int64", "offset: int64",
            "length: int64")
    .Outputs("values_gradient: T")
    .Attrs(kFloatAttr)
    .Stateless(Shapes("[?, ...x], [b + 1], [b], [b] -> [?, ...x]"))
    .Doc(R"doc(
Computes the gradient of SequenceSlice for its values; 0 outside the slices.

gradient: [sum of length, ...], of the rows.
row_splits: [B + 1].
offset: [B].
length: [B].
values_gradient: [N, ...], where row_splits end at N.
INVALID_ARGUMENT as SequenceSlice, or if the gradient has another number of
rows.
)doc");

}  // namespace lodestar
