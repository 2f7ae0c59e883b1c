// Ops around a call of Python in a function of tf.data. None has state: one
// that has would keep an iterator from being saved.

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// The shape function of outputs like the inputs from `first` on.
tensorflow::OpShapeInferenceFn LikeInputs(int first) {
  return [first](InferenceContext* c) {
    for (int i = first; i < c->num_inputs(); ++i) {
      c->set_output(i - first, c->input(i));
    }
    return absl::OkStatus();
  };
}

}  // namespace

REGISTER_OP("Lodestar>PythonCallBegin")
    .Input("values: T")
    .Output("same: T")
    .Output("call: variant")
    .Attr("T: list(type) >= 1")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(c->num_inputs(), c->Scalar());
      return LikeInputs(0)(c);
    })
    .Doc(R"doc(
Begins a call of Python: the interpreter does not end until `call` is dropped.

values: What the call takes.
call: For PythonCallEnd.
CANCELLED if Lodestar>PythonCallsStop has run.
)doc");

REGISTER_OP("Lodestar>PythonCallEnd")
    .Input("call: variant")
    .Input("values: T")
    .Output("same: T")
    .Attr("T: list(type) >= 1")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
      return LikeInputs(1)(c);
    })
    .Doc(R"doc(
Keeps a call of Python until there is what it returned.

call: As PythonCallBegin gave it.
values: What the call returned.
)doc");

REGISTER_OP("Lodestar>PythonResult")
    .Input("error: string")
    .Input("values: T")
    .Output("same: T")
    .Attr("T: list(type) >= 1")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
      return LikeInputs(1)(c);
    })
    .Doc(R"doc(
Returns what a call of Python returned, or raises the error that it met.

An exception that leaves the call would bring its traceback along.

error: A scalar. Empty, or the code of an error as one byte and its message.
values: What the call returned.
The error of `error`; INVALID_ARGUMENT if that is not a code of an error.
)doc");

REGISTER_OP("Lodestar>PythonCallsStop")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Lets no call of Python begin any more in this process, and waits until the last
one is dropped.
)doc");

}  // namespace lodestar
