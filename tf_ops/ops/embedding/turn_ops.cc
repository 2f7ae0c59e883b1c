// Contracts of the ops that let copies of a served model take turns.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace lodestar {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::NoOutputs;
using tensorflow::shape_inference::ScalarShape;

REGISTER_OP("Lodestar>MakeTurns")
    .Output("turns: variant")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Begins the turn of copy 0.

turns: Whose turn it is, for the other ops; of this process.
)doc");

REGISTER_OP("Lodestar>HoldTurn")
    .Input("turns: variant")
    .Output("turn: variant")
    .Output("copy: int32")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      c->set_output(1, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Tells whose turn it is, and holds that turn until `turn` is dropped.

turn: For ReleaseTurn.
copy: The number that BeginTurn was given.
)doc");

REGISTER_OP("Lodestar>ReleaseTurn")
    .Input("turn: variant")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Keeps a turn held until here: in a graph, what is to run before it is among its
control inputs.

turn: As HoldTurn gave it.
)doc");

REGISTER_OP("Lodestar>BeginTurn")
    .Input("turns: variant")
    .Input("copy: int32")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
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
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Whether the turn before the one that is, is held.
)doc");

}  // namespace lodestar
