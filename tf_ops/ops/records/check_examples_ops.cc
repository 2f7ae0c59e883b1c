#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>CheckExamples")
    .Input("names: string")
    .Input("examples: string")
    .Output("same: string")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {1, 1}));
      ShapeHandle shape;
      TF_RETURN_IF_ERROR(c->Merge(c->input(0), c->input(1), &shape));
      c->set_output(0, shape);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns `examples` if each has the structure of a tf.Example.

Unlike the error of TensorFlow's own parser, this op's error does not contain
the bytes of the record, which may not be text.

names: [B], the names of the records in errors.
examples: [B], serialized tf.Examples.
same: [B], `examples`.
INVALID_ARGUMENT names the first record that is not a tf.Example.
)doc");

}  // namespace lodestar
