// Ops that switch between copies of a served model.

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("MakeTurns")
    .Outputs("turns: variant")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Begins the turn of copy 0.

turns: State for the other ops, of this process.
)doc");

LODESTAR_OP("HoldTurn")
    .Inputs("turns: variant")
    .Outputs("turn: variant", "copy: int32")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Returns the current turn, and holds it until `turn` is dropped.

turn: For ReleaseTurn.
copy: The number passed to BeginTurn.
)doc");

LODESTAR_OP("ReleaseTurn")
    .Inputs("turn: variant")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Holds a turn until this op runs: in a graph, ops that must run first are control
inputs.

turn: Output of HoldTurn.
)doc");

LODESTAR_OP("BeginTurn")
    .Inputs("turns: variant", "copy: int32")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Begins a turn and ends the current one: HoldTurn then holds the new turn.

copy: A number for HoldTurn.
FAILED_PRECONDITION if the turn before the current one is still held.
)doc");

LODESTAR_OP("LastTurnIsHeld")
    .Inputs("turns: variant")
    .Outputs("held: bool")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Returns whether the turn before the current one is held.
)doc");

}  // namespace lodestar
