#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>SequenceSoftmax")
    .Input("values: T")
    .Input("row_splits: int64")
    .Output("probabilities: T")
    .Attr(kFloatAttr)
    .SetShapeFn([](InferenceContext* c) { return LikeSequences(c); })
    .Doc(R"doc(
Softmax inside each sequence, every column on its own.

values: [N, ...].
row_splits: [B + 1], sequence b holds rows [row_splits[b], row_splits[b + 1]).
probabilities: [N, ...]. A column of a sequence is NaN if it holds a NaN or
  +infinity, or nothing but -infinity; beside other numbers -infinity gives 0.
16-bit floats are computed in float32.
INVALID_ARGUMENT if the splits do not start at 0, descend or do not end at N.
On a GPU the splits are not checked: an offset is read as the nearest one in
[0, N], and a row of no sequence gets 0.
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
The gradient of SequenceSoftmax in its values.

probabilities: [N, ...], as SequenceSoftmax gave them.
gradient: [N, ...], of the probabilities.
row_splits: [B + 1].
values_gradient: [N, ...], probabilities * (gradient - the sum of probabilities *
  gradient over the column of the sequence).
INVALID_ARGUMENT if the splits are bad (on a GPU: see SequenceSoftmax) or the
shapes differ.
)doc");

}  // namespace lodestar
