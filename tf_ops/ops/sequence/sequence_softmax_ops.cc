#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>SequenceSoftmax")
    .Input("values: T")
    .Input("row_splits: int64")
    .Output("probabilities: T")
    .Attr(kFloatAttr)
    .SetShapeFn([](InferenceContext* c) { return LikeSequences(c); })
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

REGISTER_OP("Lodestar>SequenceSoftmaxGradient")
    .Input("probabilities: T")
    .Input("gradient: T")
    .Input("row_splits: int64")
    .Output("values_gradient: T")
    .Attr(kFloatAttr)
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(LikeSequences(c, 2));
      ShapeHandle shape;
      TF_RETURN_IF_ERROR(c->Merge(c->output(0), c->input(1), &shape));
      c->set_output(0, shape);
      return absl::OkStatus();
    })
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
