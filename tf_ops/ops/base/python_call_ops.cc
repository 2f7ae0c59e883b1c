// Ops around a Python call in a tf.data function. They are stateless, because
// stateful ops would prevent saving an iterator.

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// Shape function that passes on the shapes of the inputs from `first` on.
tensorflow::OpShapeInferenceFn LikeInputs(int first) {
  return [first](InferenceContext* c) {
    for (int i = first; i < c->num_inputs(); ++i) {
      c->set_output(i - first, c->input(i));
    }
    return absl::OkStatus();
  };
}

}  // namespace

LODESTAR_OP("PythonCallBegin")
    .Inputs("values: T")
    .Outputs("same: T", "call: variant")
    .Attrs("T: list(type) >= 1")
    .Stateless([](InferenceContext* c) {
      c->set_output(c->num_inputs(), c->Scalar());
      return LikeInputs(0)(c);
    })
    .Doc(R"doc(
Begins a Python call. The interpreter does not shut down before `call` is
dropped.

values: The arguments of the call.
call: For PythonCallEnd.
CANCELLED if Lodestar>PythonCallsStop has run.
)doc");

LODESTAR_OP("PythonCallEnd")
    .Inputs("call: variant", "values: T")
    .Outputs("same: T")
    .Attrs("T: list(type) >= 1")
    .Stateless([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
      return LikeInputs(1)(c);
    })
    .Doc(R"doc(
Keeps a Python call alive until its results are available.

call: Output of PythonCallBegin.
values: The results of the call.
)doc");

LODESTAR_OP("PythonResult")
    .Inputs("error: string", "values: T")
    .Outputs("same: T")
    .Attrs("T: list(type) >= 1")
    .Stateless([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
      return LikeInputs(1)(c);
    })
    .Doc(R"doc(
Returns the results of a Python call, or its error.

Errors are passed as values, because an exception that leaves the call would
carry its traceback.

error: A scalar: empty, or the error code as one byte, followed by the message.
values: The results of the call.
The error in `error`; INVALID_ARGUMENT if it does not begin with an error code.
)doc");

LODESTAR_OP("PythonCallsStop").Stateful(ScalarOutputs({})).Doc(R"doc(
Prevents further Python calls in this process, and waits for the end of running
ones.
)doc");

}  // namespace lodestar
