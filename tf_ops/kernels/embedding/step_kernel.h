// Base of kernels that update a variable as an optimizer step or as part of
// one.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_STEP_KERNEL_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_STEP_KERNEL_H_

#include <memory>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_resource.h"
#include "tf_ops/kernels/steps/step_op.h"

namespace lodestar {

// Finds the gates of the variables whose handles are the first inputs.
inline absl::Status FindGates(OpKernelContext* ctx, int num_tables,
                              StepGates* gates) {
  std::vector<std::shared_ptr<StepGate>> found;
  for (int t = 0; t < num_tables; ++t) {
    tensorflow::core::RefCountPtr<EmbeddingResource> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(t), &resource));
    found.push_back(resource->gate());
  }
  *gates = StepGates(std::move(found));
  return absl::OkStatus();
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
    EnterStep(
        ctx, done, [&](StepGates* gates) { return FindGates(ctx, 1, gates); },
        [this, ctx](StepScope) { Update(ctx); });
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
