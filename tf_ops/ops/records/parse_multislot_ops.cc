// Contract of the op that parses MultiSlot text.

#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/errors.h"

namespace lodestar {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("Lodestar>ParseMultiSlot")
    .Input("text: string")
    .Output("tensors: output_types")
    .Attr("slot_names: list(string) >= 1")
    .Attr("slot_types: list({int64, float}) >= 1")
    .Attr("slot_shapes: list(shape) >= 1")
    .Attr("slot_limits: list(int) >= 1")
    .Attr("slot_weighs: list(int) >= 1")
    .Attr("slot_used: list(bool) >= 1")
    .Attr("output_types: list({int64, float}) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &unused));
      std::vector<tensorflow::PartialTensorShape> shapes;
      TF_RETURN_IF_ERROR(c->GetAttr("output_shapes", &shapes));
      if (static_cast<int>(shapes.size()) != c->num_outputs()) {
        return tensorflow::errors::InvalidArgument(
            "`output_shapes` must have ", c->num_outputs(),
            " shapes, one for each output, found ", shapes.size());
      }
      for (int i = 0; i < c->num_outputs(); ++i) {
        ShapeHandle shape;
        TF_RETURN_IF_ERROR(
            c->MakeShapeFromPartialTensorShape(shapes[i], &shape));
        c->set_output(i, shape);
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Parses lines of MultiSlot text, one sample each.

A line has, for each feature slot in order, a count and as many values; the
attributes are those of Lodestar>MultiSlotDataset.

text: [B], lines with or without the newline at their end.
tensors: Of each used slot, in order, one tensor [B, *shape] if its shape has a
  rank, else two: the values [N] and int64 row_splits [B + 1].
INVALID_ARGUMENT "`text[i]`: ..." if a line is not as declared.
)doc");

}  // namespace lodestar
