#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>EncodeRagged")
    .Input("like: variant")
    .Input("values: T")
    .Input("row_splits: N * int64")
    .Output("encoded: N * variant")
    .Attr("T: list({int64, float}) >= 1")
    .Attr("N: int >= 1")
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Encodes RaggedTensors as RaggedTensorToVariant does, without reading the
row_splits: for those that are known to be right.

like: A RaggedTensor of ragged rank 1 that RaggedTensorToVariant has encoded.
values: [N], of each.
row_splits: [B + 1], of each.
encoded: Scalars, which share the memory of values and row_splits.
INVALID_ARGUMENT if the numbers of values and of row_splits differ, or `like` is
  no such scalar.
)doc");

}  // namespace lodestar
