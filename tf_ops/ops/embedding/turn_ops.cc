// Ops that let copies of a served model take turns.

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>MakeTurns")
    .Output("turns: variant")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Begins the turn of copy 0.

turns: Whose turn it is, for the other ops; of this process.
)doc");

REGISTER_OP("Lodestar>HoldTurn")
    .Input("turns: variant")
    .Output("turn: variant")
    .Output("copy: int32")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Tells whose turn it is, and holds that turn until `turn` is dropped.

turn: For ReleaseTurn.
copy: The number that BeginTurn was given.
)doc");

REGISTER_OP("Lodestar>ReleaseTurn")
    .Input("turn: variant")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Keeps a turn held until here: in a graph, what is to run before it is among its
control inputs.

turn: As HoldTurn gave it.
)doc");

REGISTER_OP("Lodestar>BeginTurn")
    .Input("turns: variant")
    .Input("copy: int32")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Ends the turn that is, and begins another: who holds a turn from here on, holds
this.

copy: A number for HoldTurn.
FAILED_PRECONDITION if the turn before the one that is, is still held.
)doc");

REGISTER_OP("Lodestar>LastTurnIsHeld")
    .Input("turns: variant")
    .Output("held: bool")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Whether the turn before the one that is, is held.
)doc");

}  // namespace lodestar
