// Ops that switch between copies of a served model.

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>MakeTurns")
    .Output("turns: variant")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Begins the turn of copy 0.

turns: State for the other ops, of this process.
)doc");

REGISTER_OP("Lodestar>HoldTurn")
    .Input("turns: variant")
    .Output("turn: variant")
    .Output("copy: int32")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Returns the current turn, and holds it until `turn` is dropped.

turn: For ReleaseTurn.
copy: The number passed to BeginTurn.
)doc");

REGISTER_OP("Lodestar>ReleaseTurn")
    .Input("turn: variant")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Holds a turn until this op runs: in a graph, ops that must run first are control
inputs.

turn: Output of HoldTurn.
)doc");

REGISTER_OP("Lodestar>BeginTurn")
    .Input("turns: variant")
    .Input("copy: int32")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Begins a turn and ends the current one: HoldTurn then holds the new turn.

copy: A number for HoldTurn.
FAILED_PRECONDITION if the turn before the current one is still held.
)doc");

REGISTER_OP("Lodestar>LastTurnIsHeld")
    .Input("turns: variant")
    .Output("held: bool")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Returns whether the turn before the current one is held.
)doc");

}  // namespace lodestar
