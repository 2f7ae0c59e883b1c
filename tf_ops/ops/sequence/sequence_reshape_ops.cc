#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>SequenceReshape")
    .Input("values: T")
    .Input("row_splits: int64")
    .Output("rows: T")
    .Output("reshaped_splits: int64")
    .Attr("T: type")
    .Attr("new_dim: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 1, &unused));
      ShapeHandle splits;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &splits));
      int64_t new_dim;
      TF_RETURN_IF_ERROR(c->GetAttr("new_dim", &new_dim));
      c->set_output(0, c->Matrix(InferenceContext::kUnknownDim, new_dim));
      c->set_output(1, splits);
      return absl::OkStatus();
    })
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
