#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("SequenceSoftmax")
    .Inputs("values: T", "row_splits: int64")
    .Outputs("probabilities: T")
    .Attrs(kFloatAttr)
    .Stateless(Shapes("[n, ...x], [?] -> [n, ...x]"))
    .Doc(R"doc(
Softmax within each sequence, separately for each column.

values: [N, ...].
row_splits: [B + 1]; sequence b is rows [row_splits[b], row_splits[b + 1]).
probabilities: [N, ...]. A column of a sequence is NaN if it contains a NaN or
  +infinity, or only -infinity; otherwise -infinity yields 0.
16-bit floats are computed in float32.
INVALID_ARGUMENT if the splits do not start at 0, decrease or do not end at N.
On a GPU the splits are not checked: offsets are clamped to [0, N], and a row of
no sequence is set to 0.
)doc");

LODESTAR_OP("SequenceSoftmaxGradient")
    .Inputs("probabilities: T", "gradient: T", "row_splits: int64")
    .Outputs("values_gradient: T")
    .Attrs(kFloatAttr)
    .Stateless(Shapes("[n, ...x], [n, ...x], [?] -> [n, ...x]"))
    .Doc(R"doc(
Computes the gradient of SequenceSoftmax for its values.

probabilities: [N, ...], output of SequenceSoftmax.
gradient: [N, ...], of the probabilities.
row_splits: [B + 1].
values_gradient: [N, ...], probabilities * (gradient - the sum of probabilities
  * gradient over the column of the sequence).
INVALID_ARGUMENT if the splits are invalid (on a GPU, see SequenceSoftmax) or
the shapes differ.
)doc");

}  // namespace lodestar
