#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("ClaimServer")
    .Inputs("program: string", "lease: float")
    .Outputs("owner: string", "silence: float")
    .Stateful(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Claims the process that runs this for a program, or renews its claim.

A process belongs to one program at a time. A claim lapses when the program has
not renewed it for `lease` seconds. Claiming a process whose claim has lapsed
first removes all resources in the container of the previous program.

program: The program, which is also the name of its container.
lease: Seconds after which the claim of another program has lapsed.
owner: The program that held the claim before this call; empty if none.
silence: Seconds since `owner` last claimed the process; 0 if there was none.
  The claim is refused if another program holds it and `silence` < `lease`.
)doc");

LODESTAR_OP("ReleaseServer")
    .Inputs("program: string")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Removes all resources in the container of a program, and ends its claim.

program: As for ClaimServer.
)doc");

}  // namespace lodestar
