#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>SequenceTopk")
    .Input("values: T")
    .Input("x_splits: int64")
    .Input("row_splits: int64")
    .Input("col_splits: int64")
    .Output("index: int64")
    .Attr(kFloatAttr)
    .Attr("channels: int >= 1")
    .Attr("k: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {1, 1, 1, 1}));
      int64_t channels;
      int64_t k;
      TF_RETURN_IF_ERROR(c->GetAttr("channels", &channels));
      TF_RETURN_IF_ERROR(c->GetAttr("k", &k));
      c->set_output(0, c->MakeShape({c->UnknownDim(), c->MakeDim(channels),
                                     c->MakeDim(k)}));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns the indices of the largest values in the rows of a batch of matrices.

values: [N]. Sequence b contains `channels` consecutive row-major matrices, with
  as many rows and columns as the lengths of its sequences in row and col.
x_splits: [B + 1], offsets into the values.
row_splits: [B + 1], from 0 to R, the total number of rows.
col_splits: [B + 1].
index: [R, channels, k], the indices in values of the k largest values of each
  row of each channel, largest first; -1 if a row has fewer. Ties are broken by
  index; NaN follows every number.
INVALID_ARGUMENT if splits do not start at 0, decrease, do not end at N or
differ in length, or if a sequence does not have the size of its matrices.
)doc");

}  // namespace lodestar
