#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("SkipLogRead")
    .Inputs("log: string")
    .Outputs("count: int64", "messages: string")
    .Stateful(Shapes("[] -> [], [?]"))
    .Doc(R"doc(
Returns the records that readers with this log have skipped so far.

log: Name of the log; must not be empty.
count: Number of skipped records.
messages: [M], the first error messages, each with its position.
)doc");

LODESTAR_OP("SkipLogAdd")
    .Inputs("log: string", "message: string", "count: int64")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Logs skipped records.

log: Name of the log; must not be empty.
message: Error message with its position, a scalar.
count: Number of records, a scalar, at least 0.
)doc");

LODESTAR_OP("SkipLogForget")
    .Inputs("log: string")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Removes the name of a log. Readers continue to use the log.

log: Name of the log; must not be empty.
)doc");

}  // namespace lodestar
