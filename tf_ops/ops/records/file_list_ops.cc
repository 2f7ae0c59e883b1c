#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

// `list`, a scalar, is the name of a list of files in this process.

REGISTER_OP("Lodestar>FileListPut")
    .Input("list: string")
    .Input("filenames: string")
    .Input("seed: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1, 0}))
    .Doc(R"doc(
Makes a list of files, or puts other files into it.

filenames: [F].
seed: Of the orders, where the list is a new one.
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
The files for the next pass. NOT_FOUND if the list was forgotten.

shuffle: Whether they come in an order of this pass.
)doc");

REGISTER_OP("Lodestar>FileListForget")
    .Input("list: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Drops a list of files.
)doc");

}  // namespace lodestar
