// Base of kernels that are an optimizer step of their own.

#ifndef LODESTAR_TF_OPS_KERNELS_STEPS_STEP_OP_H_
#define LODESTAR_TF_OPS_KERNELS_STEPS_STEP_OP_H_

#include "tf_ops/core/rows/step_gate.h"
#include "tf_ops/kernels/base/kernel.h"

namespace lodestar {

// Calls `inside` in the gate of all steps, then `done`, each exactly once.
// While the gate is closed, this returns at once and an inter-op thread makes
// the calls later. It must not be an intra-op thread: steps waiting there for
// their parallel loops would block each other. If there is no memory to queue
// the step, fails `ctx` without entering the gate.
template <typename Inside>
void EnterStep(OpKernelContext* ctx, const AsyncOpKernel::DoneCallback& done,
               const Inside& inside) {
  // `ctx` is invalid once `done` was called, here or on another thread.
  const Status status = StepGate::Global().Run(*ctx->runner(), inside, done);
  if (status.ok()) return;
  ctx->SetStatus(ToTensorFlow(status));
  done();
}

class StepOp : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) final {
    EnterStep(ctx, done, [this, ctx] {
      ctx->SetStatus(WithoutBadAlloc([&] { return Write(ctx); }));
      StepGate::Global().Exit();
    });
  }

 private:
  virtual absl::Status Write(OpKernelContext* ctx) const = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_STEPS_STEP_OP_H_
