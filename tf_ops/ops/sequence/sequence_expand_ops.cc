#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

LODESTAR_OP("SequenceExpand")
    .Inputs("values: T", "row_splits: int64", "ref_splits: int64")
    .Outputs("expanded: T", "expanded_splits: int64")
    .Attrs(kMovedAttr)
    .Stateless(Shapes("[?, ...x], [?], [?] -> [?, ...x], [?]"))
    .Doc(R"doc(
Repeats sequences of rows.

values: [N, ...].
row_splits: [U + 1]; unit i is rows [row_splits[i], row_splits[i + 1]).
ref_splits: [U + 1]; unit i is repeated ref_splits[i + 1] - ref_splits[i] times.
  With one element, and so no units, values and row_splits are passed on.
expanded: [M, ...].
expanded_splits: [ref_splits[U] + 1], one sequence per repetition.
INVALID_ARGUMENT if row_splits do not start at 0, decrease or do not end at N,
if ref_splits do not start at 0 or decrease, if their lengths differ, or if M or
the number of repetitions overflows int64.
)doc");

LODESTAR_OP("SequenceExpandGradient")
    .Inputs("gradient: T", "row_splits: int64", "ref_splits: int64")
    .Outputs("values_gradient: T")
    .Attrs(kFloatAttr)
    .Stateless(Shapes("[?, ...x], [?], [?] -> [?, ...x]"))
    .Doc(R"doc(
Computes the gradient of SequenceExpand for its values: sums over the
repetitions.

gradient: [M, ...], of the expanded rows.
row_splits: [U + 1].
ref_splits: [U + 1]; with one element the gradient is passed on.
values_gradient: [row_splits[U], ...]; zero if a unit is repeated 0 times.
  16-bit floats are summed in float32.
INVALID_ARGUMENT if splits are invalid, differ in length or do not produce M
rows.
)doc");

LODESTAR_OP("SequenceExpandAs")
    .Inputs("values: T", "row_splits: int64")
    .Outputs("expanded: T")
    .Attrs(kMovedAttr)
    .Stateless(Shapes("[?, ...x], [?] -> [?, ...x]"))
    .Doc(R"doc(
Repeats each row.

values: [N, ...].
row_splits: [N + 1]; row i is repeated row_splits[i + 1] - row_splits[i] times.
expanded: [row_splits[N], ...].
INVALID_ARGUMENT if the splits do not start at 0, decrease, or are not N + 1.
)doc");

}  // namespace
}  // namespace lodestar
