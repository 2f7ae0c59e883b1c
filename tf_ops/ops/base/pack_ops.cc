// Ops that send several tensors as one.

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

constexpr char kPackedTypes[] =
    "T: list({half, bfloat16, float, double, int8, int16, int32, int64, uint8, "
    "uint16, uint32, uint64, bool}) >= 1";

absl::Status PackShape(InferenceContext* c) {
  ShapeHandle unused;
  int num_parts = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_parts", &num_parts));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(c->num_inputs() - 1), 0, &unused));
  c->set_output(0, c->Matrix(num_parts, c->UnknownDim()));
  return absl::OkStatus();
}

absl::Status UnpackShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, {2}));
  return OutputsOfAttribute(c);
}

}  // namespace

LODESTAR_OP("PackTensors")
    .Inputs("tensors: T", "width: int64")
    .Outputs("packed: int64")
    .Attrs("num_parts: int >= 1 = 1", kPackedTypes)
    .Stateless(PackShape)
    .Doc(R"doc(
Packs the bytes of tensors into one tensor with a row per part.

A row has the first dimension of each tensor of its part, 1 for a scalar, and then
their elements. Each tensor begins at a multiple of 8 bytes. Zeros follow.

tensors: num_parts * K tensors, those of the first part first. UnpackTensors
  must be given the shapes, of which it only reads the first dimension.
width: Scalar, the number of int64 per part, or 0 for that of the largest part.
packed: Int64, [num_parts, width].
num_parts: Number of parts, which divides the number of tensors.
INVALID_ARGUMENT if a part has more than `width` > 0 int64.
)doc");

LODESTAR_OP("UnpackTensors")
    .Inputs("packed: int64")
    .Outputs("tensors: T")
    .Attrs("num_parts: int >= 1 = 1", kPackedTypes,
           "output_shapes: list(shape) >= 1")
    .Stateless(UnpackShape)
    .Doc(R"doc(
Returns the tensors that PackTensors has packed.

packed: Output of PackTensors, which may be from another machine.
tensors: The tensors.
num_parts: As for PackTensors.
output_shapes: The shape of each tensor, with known dimensions apart from the
  first.
INVALID_ARGUMENT if `packed` was not packed from such tensors.
)doc");

}  // namespace lodestar
