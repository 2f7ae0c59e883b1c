#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>LibraryVersion")
    .Output("version: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Which library the process that runs this has loaded.

version: That of the package, and of the TensorFlow that it was built for.
)doc");

}  // namespace lodestar
