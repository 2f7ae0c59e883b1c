#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
LODESTAR_OP("SequenceConcat")
    .Inputs("values: N * T", "lods: M * int64")
    .Outputs("rows: T", "row_splits: int64")
    .Attrs(kMovedAttr, "N: int >= 1", "M: int >= 1")
    .Stateless([](InferenceContext* c) {
      int64_t n;
      int64_t m;
      TF_RETURN_IF_ERROR(c->GetAttr("N", &n));
      TF_RETURN_IF_ERROR(c->GetAttr("M", &m));
      ShapeHandle rows;
      TF_RETURN_IF_ERROR(ReplaceFirst(c, c->input(0), c->UnknownDim(), 0));
      rows = c->output(0);
      for (int64_t k = 1; k < n; ++k) {
        TF_RETURN_IF_ERROR(ReplaceFirst(c, c->input(k), c->UnknownDim(), 0));
        TF_RETURN_IF_ERROR(c->Merge(rows, c->output(0), &rows));
      }
      c->set_output(0, rows);
      ShapeHandle splits = c->UnknownShapeOfRank(1);
      for (int64_t k = 0; k < m; ++k) {
        ShapeHandle level;
        TF_RETURN_IF_ERROR(c->WithRank(c->input(n + k), 1, &level));
        const int64_t levels = m / n;
        if (levels > 0 && k % levels == levels - 1) {
          TF_RETURN_IF_ERROR(c->Merge(splits, level, &splits));
        }
      }
      c->set_output(1, splits);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Concatenates batches sequence by sequence.

values: N batches of rows, [N_k, ...], equal in all but the first dimension.
lods: The offset levels of each batch, outermost first: M / N per batch. The
  last ones have B + 1 offsets, the others are the same in all batches.
rows: [sum of N_k, ...]. Sequence b is sequence b of the first batch, followed
  by sequence b of the second, and so on.
row_splits: [B + 1], the sums of the last levels.
INVALID_ARGUMENT if M is not a multiple of N, the rows differ in a dimension, or
levels are invalid or differ.
)doc");

LODESTAR_OP("SequenceConcatGradient")
    .Inputs("gradient: T", "row_splits: N * int64")
    .Outputs("values_gradient: N * T")
    .Attrs(kFloatAttr, "N: int >= 1")
    .Stateless([](InferenceContext* c) {
      for (int k = 0; k < c->num_outputs(); ++k) {
        ShapeHandle unused;
        TF_RETURN_IF_ERROR(c->WithRank(c->input(1 + k), 1, &unused));
        TF_RETURN_IF_ERROR(ReplaceFirst(c, c->input(0), c->UnknownDim(), k));
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Computes the gradient of SequenceConcat for its values: splits the rows.

gradient: [sum of N_k, ...].
row_splits: The last level of each batch, [B + 1], ending at N_k.
values_gradient: [N_k, ...] each.
INVALID_ARGUMENT if splits do not start at 0 or decrease, differ in length, or
their ends do not sum to the number of rows of the gradient.
)doc");

}  // namespace lodestar
