// Guards Python calls from tf.data functions. None may be running when the
// interpreter shuts down: a thread that waits for the interpreter is then
// killed in the middle of its work, and joining that work, for example by
// destroying a prefetching iterator, hangs forever.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/base/variant_handle.h"

namespace lodestar {
namespace {

class PythonCalls {
 public:
  // Returns false if no more calls are allowed.
  bool Begin() {
    MutexLock lock(&mutex_);
    if (stopped_) return false;
    ++running_;
    return true;
  }
  void End() {
    MutexLock lock(&mutex_);
    --running_;
    ended_.NotifyAll();
  }
  void Stop() {
    MutexLock lock(&mutex_);
    stopped_ = true;
    while (running_ > 0) ended_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  ConditionVariable ended_;
  bool stopped_ LODESTAR_GUARDED_BY(mutex_) = false;
  int64_t running_ LODESTAR_GUARDED_BY(mutex_) = 0;
};

PythonCalls& AllCalls() {
  // Never destroyed, since iterators may outlive static destruction.
  static PythonCalls* const calls = new PythonCalls;
  return *calls;
}

// Ends the call when the tensor that holds it is destroyed, also after an
// error.
struct PythonCall {
  const bool begun = AllCalls().Begin();
  ~PythonCall() {
    if (begun) AllCalls().End();
  }
};

absl::Status ForwardValues(OpKernelContext* ctx) {
  OpInputList values;
  LODESTAR_TRY(ctx->input_list("values", &values));
  for (int i = 0; i < values.size(); ++i) ctx->set_output(i, values[i]);
  return absl::OkStatus();
}

absl::Status RunPythonCallBegin(OpKernelContext* ctx) {
  auto call = std::make_shared<PythonCall>();
  if (!call->begun) return tensorflow::errors::Cancelled("Python ends");
  LODESTAR_TRY(OutputHandle(ctx, ctx->num_inputs(), std::move(call)));
  return ForwardValues(ctx);
}

absl::Status RunPythonCallEnd(OpKernelContext* ctx) {
  std::shared_ptr<PythonCall> call;
  LODESTAR_TRY(ReadHandle(ctx->input(0), "call", "PythonCallBegin", &call));
  return ForwardValues(ctx);
}

absl::Status RunPythonResult(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "error", 0));
  const std::string error(ctx->input(0).scalar<tstring>()());
  if (error.empty()) {
    return ForwardValues(ctx);
  }
  const int code = static_cast<unsigned char>(error[0]);
  if (code == 0 ||
      code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return InvalidArgumentError("`error` must begin with a code, found ", code);
  }
  return absl::Status(static_cast<absl::StatusCode>(code), error.substr(1));
}

absl::Status RunPythonCallsStop(OpKernelContext*) {
  AllCalls().Stop();
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(PythonCallBegin);
LODESTAR_REGISTER_FUNCTION(PythonCallEnd);
LODESTAR_REGISTER_FUNCTION(PythonResult);
LODESTAR_REGISTER_FUNCTION(PythonCallsStop);

}  // namespace
}  // namespace lodestar
