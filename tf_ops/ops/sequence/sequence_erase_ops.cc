#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>SequenceErase")
    .Input("values: T")
    .Input("row_splits: int64")
    .Input("tokens: T")
    .Output("rows: T")
    .Output("kept_splits: int64")
    .Attr("T: {int32, int64, string}")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle splits;
      TF_RETURN_IF_ERROR(CheckRanks(c, {kAnyRank, kAnyRank, 1}));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &splits));
      c->set_output(1, splits);
      return ReplaceFirst(c, c->input(0), c->UnknownDim(), 0);
    })
    .Doc(R"doc(
Removes listed tokens from sequences.

values: [N] or [N, 1, ...], one token per row.
row_splits: [B + 1]; sequence b is rows [row_splits[b], row_splits[b + 1]).
tokens: [T], the tokens to remove.
rows: [M] or [M, 1, ...], the remaining tokens in order.
kept_splits: [B + 1], from 0 to M.
INVALID_ARGUMENT if a row does not have one token, or the splits do not start at
0, decrease or do not end at N.
)doc");

}  // namespace lodestar
