#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

// `list`, a scalar, is the name of a file list of this process.

REGISTER_OP("Lodestar>FileListPut")
    .Input("list: string")
    .Input("filenames: string")
    .Input("seed: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1, 0}))
    .Doc(R"doc(
Creates a file list, or replaces its files.

filenames: [F].
seed: Seed of the shuffles, if the list is new.
)doc");

REGISTER_OP("Lodestar>FileListNext")
    .Input("list: string")
    .Output("filenames: string")
    .Attr("shuffle: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns the files of the next epoch. NOT_FOUND if the list was removed.

shuffle: Whether to shuffle the files for this epoch.
)doc");

REGISTER_OP("Lodestar>FileListForget")
    .Input("list: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Removes a file list.
)doc");

}  // namespace lodestar
