#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// Checks inputs 1 to 3: row_splits [B + 1], offset [B], length [B].
absl::Status CheckParts(InferenceContext* c, ShapeHandle* splits) {
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, splits));
  DimensionHandle batch;
  TF_RETURN_IF_ERROR(c->Subtract(c->Dim(*splits, 0), 1, &batch));
  for (int k = 2; k <= 3; ++k) {
    ShapeHandle numbers;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(k), 1, &numbers));
    TF_RETURN_IF_ERROR(c->Merge(c->Dim(numbers, 0), batch, &batch));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("Lodestar>SequenceSlice")
    .Input("values: T")
    .Input("row_splits: int64")
    .Input("offset: int64")
    .Input("length: int64")
    .Output("rows: T")
    .Output("sliced_splits: int64")
    .Attr(kMovedAttr)
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle splits;
      TF_RETURN_IF_ERROR(CheckParts(c, &splits));
      c->set_output(1, splits);
      return ReplaceFirst(c, c->input(0), c->UnknownDim(), 0);
    })
    .Doc(R"doc(
Slices each sequence.

values: [N, ...].
row_splits: [B + 1]; sequence b is rows [row_splits[b], row_splits[b + 1]).
offset: [B], the first row of each slice, relative to its sequence.
length: [B], the number of rows of each slice.
rows: [sum of length, ...].
sliced_splits: [B + 1].
INVALID_ARGUMENT if the splits do not start at 0, decrease or do not end at N,
or if a slice is out of range or has a negative length.
)doc");

REGISTER_OP("Lodestar>SequenceSliceGradient")
    .Input("gradient: T")
    .Input("row_splits: int64")
    .Input("offset: int64")
    .Input("length: int64")
    .Output("values_gradient: T")
    .Attr(kFloatAttr)
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle splits;
      TF_RETURN_IF_ERROR(CheckParts(c, &splits));
      return ReplaceFirst(c, c->input(0), c->UnknownDim(), 0);
    })
    .Doc(R"doc(
Computes the gradient of SequenceSlice for its values; 0 outside the slices.

gradient: [sum of length, ...], of the rows.
row_splits: [B + 1].
offset: [B].
length: [B].
values_gradient: [N, ...], where row_splits end at N.
INVALID_ARGUMENT as SequenceSlice, or if the gradient has another number of
rows.
)doc");

}  // namespace lodestar
