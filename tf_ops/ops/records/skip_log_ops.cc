#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>SkipLogRead")
    .Input("log: string")
    .Output("count: int64")
    .Output("messages: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
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
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Notes records that were left out.

log: Its name; must not be empty.
message: Where and why, a scalar.
count: How many, a scalar, at least 0.
)doc");

REGISTER_OP("Lodestar>SkipLogForget")
    .Input("log: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Forgets a log; readers that are under way go on with it unseen.

log: Its name; must not be empty.
)doc");

}  // namespace lodestar
