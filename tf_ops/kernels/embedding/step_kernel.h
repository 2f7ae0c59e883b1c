// Base of kernels that update a variable as an optimizer step or as part of
// one.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_STEP_KERNEL_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_STEP_KERNEL_H_

#include <memory>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/rows/step_gate.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_resource.h"

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

// Input 0 is the variable's handle. With attribute inside_step the kernel is
// part of a step that has begun; otherwise it is a step of its own.
class StepKernel : public AsyncOpKernel {
 public:
  explicit StepKernel(OpKernelConstruction* ctx) : AsyncOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("inside_step", &inside_step_));
  }

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) final {
    if (inside_step_) {
      Update(ctx);
      done();
      return;
    }
    EnterStep(ctx, done, [this, ctx] {
      Update(ctx);
      StepGate::Global().Exit();
    });
  }

 protected:
  virtual absl::Status ComputeInStep(OpKernelContext* ctx,
                                     EmbeddingStore* store) = 0;

 private:
  void Update(OpKernelContext* ctx) {
    ctx->SetStatus(WithoutBadAlloc([&] {
      tensorflow::core::RefCountPtr<EmbeddingResource> resource;
      LODESTAR_TRY(FindResource(ctx, ctx->input(0), &resource));
      std::shared_ptr<EmbeddingStore> store;
      LODESTAR_TRY(resource->GetStore(&store));
      return WithTableName(ctx, ComputeInStep(ctx, store.get()));
    }));
  }

  bool inside_step_ = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_STEP_KERNEL_H_
