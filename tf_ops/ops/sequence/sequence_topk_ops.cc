#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("SequenceTopk")
    .Inputs("values: T", "x_splits: int64", "row_splits: int64",
            "col_splits: int64")
    .Outputs("index: int64")
    .Attrs(kFloatAttr, "channels: int >= 1", "k: int >= 1")
    .Stateless(Shapes("[?], [?], [?], [?] -> [?, @channels, @k]"))
    .Doc(R"doc(
Returns the indices of the largest values in the rows of a batch of matrices.

values: [N]. Sequence b contains `channels` consecutive row-major matrices, with
  as many rows and columns as the lengths of its sequences in row and col.
x_splits: [B + 1], offsets into the values.
row_splits: [B + 1], from 0 to R, the total number of rows.
col_splits: [B + 1].
index: [R, channels, k], the indices in values of the k largest values of each
  row of each channel, largest first; -1 if a row has fewer. Ties are broken by
  index; NaN follows every number.
INVALID_ARGUMENT if splits do not start at 0, decrease, do not end at N or
differ in length, or if a sequence does not have the size of its matrices.
)doc");

}  // namespace lodestar
