#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

using tensorflow::Tensor;

LODESTAR_OP("SequencePad")
    .Inputs("values: T", "row_splits: int64", "pad_value: T", "maxlen: int64")
    .Outputs("padded: T", "lengths: int64")
    .Attrs(kMovedAttr)
    .Stateless([](InferenceContext* c) {
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

LODESTAR_OP("SequenceUnpad")
    .Inputs("padded: T", "lengths: int64")
    .Outputs("values: T", "row_splits: int64")
    .Attrs(kMovedAttr)
    .Stateless(Shapes("[b, ?, ...x], [b] -> [?, ...x], [b + 1]"))
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
