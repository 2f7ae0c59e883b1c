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
Returns the records that readers with this log have skipped so far.

log: Name of the log; must not be empty.
count: Number of skipped records.
messages: [M], the first error messages, each with its position.
)doc");

REGISTER_OP("Lodestar>SkipLogAdd")
    .Input("log: string")
    .Input("message: string")
    .Input("count: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Logs skipped records.

log: Name of the log; must not be empty.
message: Error message with its position, a scalar.
count: Number of records, a scalar, at least 0.
)doc");

REGISTER_OP("Lodestar>SkipLogForget")
    .Input("log: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Removes the name of a log. Readers continue to use the log.

log: Name of the log; must not be empty.
)doc");

}  // namespace lodestar
