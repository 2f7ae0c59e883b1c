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
The places of the largest numbers in the rows of a batch of matrices.

values: [N]. Sequence b holds `channels` matrices one after the other, row by
  row, of as many rows and columns as its sequences in row and col are long.
x_splits: [B + 1], offsets into the values.
row_splits: [B + 1], from 0 to R, the number of all rows.
col_splits: [B + 1].
index: [R, channels, k], where in the values the k largest numbers of each row
  of each channel are, largest first; -1 where a row has fewer. Of equal numbers
  the first comes first; NaN comes after every number.
INVALID_ARGUMENT if splits do not start at 0, descend, do not end at N or are
not equally many, or if a sequence is not as long as its matrices.
)doc");

}  // namespace lodestar
