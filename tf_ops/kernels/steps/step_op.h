// Base of kernels that are an optimizer step of their own.

#ifndef LODESTAR_TF_OPS_KERNELS_STEPS_STEP_OP_H_
#define LODESTAR_TF_OPS_KERNELS_STEPS_STEP_OP_H_

#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/kernels/base/kernel.h"

namespace lodestar {

// Calls `step` inside the gates that find(StepGates*) returns, then `done`,
// each exactly once. While a gate is closed, this returns at once and an
// inter-op thread makes the calls later. It must not be an intra-op thread:
// steps waiting there for their parallel loops would block each other. If
// `find` fails or there is no memory to queue the step, fails `ctx` without
// calling `step`.
template <typename Find, typename Step>
void EnterStep(OpKernelContext* ctx, const AsyncOpKernel::DoneCallback& done,
               const Find& find, const Step& step) {
  StepGates gates;
  absl::Status status = WithoutBadAlloc([&] { return find(&gates); });
  // `ctx` is invalid once `done` was called, here or on another thread.
  if (status.ok()) {
    status = ToTensorFlow(gates.Run(*ctx->runner(), step, done));
  }
  if (status.ok()) return;
  ctx->SetStatus(status);
  done();
}

class StepOp : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) final {
    EnterStep(
        ctx, done, [&](StepGates* gates) { return FindGates(ctx, gates); },
        [this, ctx](StepScope) {
          ctx->SetStatus(WithoutBadAlloc([&] { return Write(ctx); }));
        });
  }

 private:
  virtual absl::Status FindGates(OpKernelContext* ctx,
                                 StepGates* gates) const = 0;
  virtual absl::Status Write(OpKernelContext* ctx) const = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_STEPS_STEP_OP_H_
