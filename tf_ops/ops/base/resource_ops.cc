#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("ReleaseResource")
    .Inputs("handle: resource")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Removes the name of a resource of this library, which its last handle then frees.

A resource in the container of a program is freed at once. Does nothing if the
name is removed already.
)doc");

}  // namespace lodestar
