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
Encodes RaggedTensors like RaggedTensorToVariant, without reading the
row_splits, which must be valid.

like: A RaggedTensor of ragged rank 1, encoded by RaggedTensorToVariant.
values: Per tensor, [N].
row_splits: Per tensor, [B + 1].
encoded: Scalars, which share the memory of values and row_splits.
INVALID_ARGUMENT if the numbers of values and of row_splits differ, or `like` is
not an encoded RaggedTensor.
)doc");

}  // namespace lodestar
