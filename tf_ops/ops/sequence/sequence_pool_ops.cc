#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

LODESTAR_OP("SequencePool")
    .Inputs("values: T", "row_splits: int64", "pad_value: T")
    .Outputs("pooled: T", "index: int64")
    .Attrs(kNumberAttr,
           "combiner: {'sum', 'mean', 'sqrtn', 'max', 'first', 'last'} = 'sum'")
    .Stateless([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {kAnyRank, 1, 0}));
      DimensionHandle batch;
      TF_RETURN_IF_ERROR(c->Subtract(c->Dim(c->input(1), 0), 1, &batch));
      TF_RETURN_IF_ERROR(ReplaceFirst(c, c->input(0), batch, 0));
      std::string combiner;
      TF_RETURN_IF_ERROR(c->GetAttr("combiner", &combiner));
      c->set_output(1, combiner == "max" ? c->output(0) : c->Vector(0));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Pools each sequence of rows to one row.

values: [N, ...].
row_splits: [B + 1]; sequence b is rows [row_splits[b], row_splits[b + 1]).
pad_value: A scalar.
pooled: [B, ...]; pad_value if a sequence is empty.
index: For max [B, ...], the row of each first maximum, -1 if a sequence is
  empty; else [0].
Sums and means of 16-bit floats are accumulated in float32, of int32 in int64;
integer means and sqrtn are rounded toward zero.
INVALID_ARGUMENT if the splits do not start at 0, decrease or do not end at N.
On a GPU the splits are not checked: offsets are clamped to [0, N].
)doc");

LODESTAR_OP("SequencePoolGradient")
    .Inputs("gradient: T", "row_splits: int64", "index: int64",
            "num_rows: int64")
    .Outputs("values_gradient: T")
    .Attrs(kFloatAttr,
           "combiner: {'sum', 'mean', 'sqrtn', 'max', 'first', 'last'} = 'sum'")
    .Stateless([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {kAnyRank, 1, kAnyRank, 0}));
      DimensionHandle rows;
      TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(3, &rows));
      return ReplaceFirst(c, c->input(0), rows, 0);
    })
    .Doc(R"doc(
Computes the gradient of SequencePool for its values.

gradient: [B, ...], of the pooled rows.
row_splits: [B + 1].
index: Output of SequencePool.
num_rows: N.
values_gradient: [N, ...].
INVALID_ARGUMENT if the splits are invalid or an index is outside its sequence.
On a GPU neither is checked: offsets are clamped to [0, N], and such an index,
or a row of no sequence, is ignored.
)doc");

}  // namespace
}  // namespace lodestar
