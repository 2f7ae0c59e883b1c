#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("CutBuffer")
    .Inputs("buffer: uint8", "places: int64")
    .Outputs("pieces: output_types")
    .Attrs("output_types: list({int64, float}) >= 1",
           "output_shapes: list(shape) >= 1")
    .Stateless([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {1, 2}));
      return OutputsOfAttribute(c);
    })
    .Doc(R"doc(
Splits bytes into tensors that share their memory.

buffer: [N], the bytes.
places: [P, 3], per tensor its first byte, a multiple of 64, its end, and its
  first dimension. Tensors may overlap.
pieces: P tensors of `output_types` and `output_shapes`, in which the first
  dimension and one other may be unknown.
INVALID_ARGUMENT if a place is out of range, or does not match its shape.
)doc");

}  // namespace lodestar
