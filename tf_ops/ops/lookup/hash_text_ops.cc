#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("HashText")
    .Inputs("data: uint8", "offsets: int64", "prefix: string")
    .Outputs("hashes: int64")
    .Stateless(Shapes("[?], [b + 1], [] -> [b]"))
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
