#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("EncodeRagged")
    .Inputs("like: variant", "values: T", "row_splits: N * int64")
    .Outputs("encoded: N * variant")
    .Attrs("T: list({int64, float}) >= 1", "N: int >= 1")
    .Stateless(ScalarOutputs({0}))
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
