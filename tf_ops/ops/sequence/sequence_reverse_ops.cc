#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("SequenceReverse")
    .Inputs("values: T", "row_splits: int64")
    .Outputs("reversed: T")
    .Attrs(
        "T: {half, bfloat16, float, double, int8, int16, int32, int64, uint8, "
        "uint16, uint32, uint64, complex64, complex128, bool, string}")
    .Stateless(Shapes("[n, ...x], [?] -> [n, ...x]"))
    .Doc(R"doc(
Reverses the rows within each sequence.

values: [N, ...].
row_splits: [B + 1]; sequence b is rows [row_splits[b], row_splits[b + 1]).
reversed: [N, ...], with the same splits.
INVALID_ARGUMENT if the splits do not start at 0, decrease or do not end at N.
On a GPU the splits are not checked: offsets are clamped to [0, N], and a row of
no sequence is copied unchanged.
)doc");

}  // namespace lodestar
