#include "tf_ops/ops/records/slot_attrs.h"
#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("ParseMultiSlot")
    .Inputs("text: string")
    .Outputs("tensors: output_types")
    .Attrs(LODESTAR_SLOT_ATTRS, "output_types: list({int64, float}) >= 1",
           "output_shapes: list(shape) >= 1")
    .Stateless([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {1}));
      return OutputsOfAttribute(c);
    })
    .Doc(R"doc(
Parses lines of MultiSlot text, one sample each.

For each feature slot in order, a line has the number of values and the values.
Has the attributes of Lodestar>MultiSlotDataset.

text: [B], lines with or without a newline at the end.
tensors: Per used slot, in order, one tensor [B, *shape] if its shape has a
  rank, else two: the values [N] and int64 row_splits [B + 1].
INVALID_ARGUMENT "`text[i]`: ..." if a line does not match the slots.
)doc");

}  // namespace lodestar
