#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>CutBuffer")
    .Input("buffer: uint8")
    .Input("places: int64")
    .Output("pieces: output_types")
    .Attr("output_types: list({int64, float}) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {1, 2}));
      return OutputsOfAttribute(c);
    })
    .Doc(R"doc(
Cuts bytes into tensors that share their memory.

buffer: [N], the bytes.
places: [P, 3], of each tensor the bytes where it begins, a multiple of 64, and
  ends, and its first dimension. Tensors may share bytes.
pieces: P tensors of `output_types` and `output_shapes`, in which the first
  dimension and one other may be unknown.
INVALID_ARGUMENT if a place is beyond the buffer, or does not fit its shape.
)doc");

}  // namespace lodestar
