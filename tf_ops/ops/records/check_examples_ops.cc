#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("CheckExamples")
    .Inputs("names: string", "examples: string")
    .Outputs("same: string")
    .Stateless(Shapes("[b], [b] -> [b]"))
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
