#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

using tensorflow::Tensor;

REGISTER_OP("Lodestar>SequencePad")
    .Input("values: T")
    .Input("row_splits: int64")
    .Input("pad_value: T")
    .Input("maxlen: int64")
    .Output("padded: T")
    .Output("lengths: int64")
    .Attr(kMovedAttr)
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle values;
      TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 1, &values));
      TF_RETURN_IF_ERROR(CheckRanks(c, {kAnyRank, 1, kAnyRank, 0}));
      DimensionHandle batch;
      TF_RETURN_IF_ERROR(c->Subtract(c->Dim(c->input(1), 0), 1, &batch));
      DimensionHandle steps = c->UnknownDim();
      const Tensor* maxlen = c->input_tensor(3);
      if (maxlen != nullptr && maxlen->scalar<int64_t>()() >= 0) {
        steps = c->MakeDim(maxlen->scalar<int64_t>()());
      }
      ShapeHandle step;
      TF_RETURN_IF_ERROR(c->Subshape(values, 1, &step));
      ShapeHandle padded;
      TF_RETURN_IF_ERROR(
          c->Concatenate(c->MakeShape({batch, steps}), step, &padded));
      c->set_output(0, padded);
      c->set_output(1, c->Vector(batch));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Pads sequences of rows at the end to the same length.

values: [N, ...].
row_splits: [B + 1]; sequence b is rows [row_splits[b], row_splits[b + 1]).
pad_value: A scalar, or one step: [...].
maxlen: T, or -1 for the longest length.
padded: [B, T, ...].
lengths: [B].
INVALID_ARGUMENT if the splits do not start at 0, decrease or do not end at N,
if a sequence is longer than maxlen, if maxlen is less than -1, or if pad_value
has another shape.
)doc");

REGISTER_OP("Lodestar>SequenceUnpad")
    .Input("padded: T")
    .Input("lengths: int64")
    .Output("values: T")
    .Output("row_splits: int64")
    .Attr(kMovedAttr)
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle padded;
      TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 2, &padded));
      ShapeHandle lengths;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &lengths));
      DimensionHandle batch = c->Dim(lengths, 0);
      if (c->RankKnown(padded)) {
        TF_RETURN_IF_ERROR(c->Merge(c->Dim(padded, 0), batch, &batch));
      }
      DimensionHandle offsets;
      TF_RETURN_IF_ERROR(c->Add(batch, 1, &offsets));
      c->set_output(1, c->Vector(offsets));
      ShapeHandle rows;
      TF_RETURN_IF_ERROR(c->Subshape(padded, 1, &rows));
      return ReplaceFirst(c, rows, c->UnknownDim(), 0);
    })
    .Doc(R"doc(
Removes the padding of sequences.

padded: [B, T, ...].
lengths: [B], the number of steps of each sequence, 0 to T.
values: [sum of lengths, ...].
row_splits: [B + 1].
INVALID_ARGUMENT if there are not B lengths, or one is not in [0, T].
)doc");

}  // namespace
}  // namespace lodestar
