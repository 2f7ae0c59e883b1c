#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("SequenceReshape")
    .Inputs("values: T", "row_splits: int64")
    .Outputs("rows: T", "reshaped_splits: int64")
    .Attrs("T: type", "new_dim: int >= 1")
    .Stateless(Shapes("[?, ...x], [b] -> [?, @new_dim], [b]"))
    .Doc(R"doc(
Reshapes the rows of each sequence to rows of new_dim values.

values: [N, ...].
row_splits: [B + 1]; sequence b is rows [row_splits[b], row_splits[b + 1]).
rows: [number of values / new_dim, new_dim], in the buffer of the values.
reshaped_splits: [B + 1].
INVALID_ARGUMENT if the splits do not start at 0, decrease or do not end at N,
or if the values of a sequence do not fill rows of new_dim.
)doc");

}  // namespace lodestar
