// Contracts of the ops on what readers have left out.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace lodestar {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("Lodestar>SkipLogRead")
    .Input("log: string")
    .Output("count: int64")
    .Output("messages: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      c->set_output(0, c->Scalar());
      c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
      return absl::OkStatus();
    })
    .Doc(R"doc(
What readers with this log have left out so far.

log: Its name; must not be empty.
count: Records left out.
messages: [M], the first of the reasons, each with its place.
)doc");

REGISTER_OP("Lodestar>SkipLogAdd")
    .Input("log: string")
    .Input("message: string")
    .Input("count: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Notes records that were left out.

log: Its name; must not be empty.
message: Where and why, a scalar.
count: How many, a scalar, at least 0.
)doc");

REGISTER_OP("Lodestar>SkipLogForget")
    .Input("log: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Forgets a log; readers that are under way go on with it unseen.

log: Its name; must not be empty.
)doc");

}  // namespace lodestar
