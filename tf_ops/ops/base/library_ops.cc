#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("LibraryVersion")
    .Outputs("version: string")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Returns the version of the library that this process has loaded.

version: The version of the package, and of the TensorFlow release it was built
  for.
)doc");

}  // namespace lodestar
