#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>HashText")
    .Input("data: uint8")
    .Input("offsets: int64")
    .Input("prefix: string")
    .Output("hashes: int64")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {1, 1, 0}));
      DimensionHandle count;
      TF_RETURN_IF_ERROR(c->Subtract(c->Dim(c->input(1), 0), 1, &count));
      c->set_output(0, c->Vector(count));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Hashes strings that are stored as the bytes and offsets of an Arrow array.

data: [N], the bytes of all strings.
offsets: [B + 1], non-decreasing, in [0, N]. String i is
  data[offsets[i]:offsets[i + 1]].
prefix: Scalar. The bytes that precede each string in its hash.
hashes: [B], FarmHash's Fingerprint64 of `prefix` and the string, as int64.
INVALID_ARGUMENT if `offsets` is empty, decreases or is not in [0, N].
)doc");

}  // namespace lodestar
