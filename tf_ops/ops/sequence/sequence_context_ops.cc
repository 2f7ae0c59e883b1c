#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// Sets output 0 to [N] + `middle` + the dimensions of `rows` from `from` on.
absl::Status SetRows(InferenceContext* c, ShapeHandle rows, int64_t from,
                     ShapeHandle middle) {
  ShapeHandle first;
  ShapeHandle rest;
  TF_RETURN_IF_ERROR(c->Subshape(rows, 0, 1, &first));
  TF_RETURN_IF_ERROR(c->Subshape(rows, from, &rest));
  TF_RETURN_IF_ERROR(c->Concatenate(first, middle, &first));
  TF_RETURN_IF_ERROR(c->Concatenate(first, rest, &rest));
  c->set_output(0, rest);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("Lodestar>SequenceContext")
    .Input("values: T")
    .Input("row_splits: int64")
    .Input("pad_value: T")
    .Output("windows: T")
    .Attr(kNumberAttr)
    .Attr("start: int")
    .Attr("size: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {kAnyRank, 1, 0}));
      ShapeHandle rows;
      TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 1, &rows));
      int64_t size;
      TF_RETURN_IF_ERROR(c->GetAttr("size", &size));
      return SetRows(c, rows, 1, c->Vector(size));
    })
    .Doc(R"doc(
Returns a window of rows around each row, within its sequence.

values: [N, ...].
row_splits: [B + 1]; sequence b is rows [row_splits[b], row_splits[b + 1]).
pad_value: A scalar.
windows: [N, size, ...]. windows[r, j] is values[r + start + j], or pad_value if
  that row is not in the sequence of r.
start: Between -2^60 and 2^60.
INVALID_ARGUMENT if the splits do not start at 0, decrease or do not end at N.
)doc");

REGISTER_OP("Lodestar>SequenceContextGradient")
    .Input("gradient: T")
    .Input("row_splits: int64")
    .Output("values_gradient: T")
    .Attr(kFloatAttr)
    .Attr("start: int")
    .Attr("size: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {kAnyRank, 1}));
      ShapeHandle gradient;
      TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 2, &gradient));
      int64_t size;
      TF_RETURN_IF_ERROR(c->GetAttr("size", &size));
      DimensionHandle unused_size;
      TF_RETURN_IF_ERROR(c->WithValue(c->Dim(gradient, 1), size, &unused_size));
      return SetRows(c, gradient, 2, c->Scalar());
    })
    .Doc(R"doc(
Computes the gradient of SequenceContext for its values.

gradient: [N, size, ...], of the windows.
row_splits: [B + 1].
values_gradient: [N, ...]. 16-bit floats are summed in float32.
INVALID_ARGUMENT if the splits are invalid or the gradient has another shape.
)doc");

}  // namespace lodestar
