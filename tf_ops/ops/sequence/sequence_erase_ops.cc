#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("SequenceErase")
    .Inputs("values: T", "row_splits: int64", "tokens: T")
    .Outputs("rows: T", "kept_splits: int64")
    .Attrs("T: {int32, int64, string}")
    .Stateless(Shapes("[?, ...x], [b], [?] -> [?, ...x], [b]"))
    .Doc(R"doc(
Removes listed tokens from sequences.

values: [N] or [N, 1, ...], one token per row.
row_splits: [B + 1]; sequence b is rows [row_splits[b], row_splits[b + 1]).
tokens: [T], the tokens to remove.
rows: [M] or [M, 1, ...], the remaining tokens in order.
kept_splits: [B + 1], from 0 to M.
INVALID_ARGUMENT if a row does not have one token, or the splits do not start at
0, decrease or do not end at N.
)doc");

}  // namespace lodestar
