// A kernel that updates a variable as an optimizer step, or as a part of one.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_STEP_KERNEL_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_STEP_KERNEL_H_

#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/rows/step_gate.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_resource.h"

namespace lodestar {

// Calls `inside` in the gate of all steps, then `done`. It may be later, on a
// thread that runs kernels; no thread waits for it. Not on one of those that
// kernels share their loops among: steps that wait there for their shares would
// keep all of them from taking one. Out of memory: fails `ctx`, outside the
// gate.
template <typename Inside>
void EnterStep(OpKernelContext* ctx, const AsyncOpKernel::DoneCallback& done,
               const Inside& inside) {
  try {
    std::function<void()> entered = [inside, done] {
      inside();
      done();
    };
    StepGate& gate = StepGate::Global();
    if (gate.TryEnter()) {
      entered();
      return;
    }
    // A copy: `ctx` may be gone before the call of it is over.
    gate.Enter([runner = *ctx->runner(), entered = std::move(entered)] {
      runner(entered);
    });
  } catch (const std::bad_alloc&) {
    ctx->SetStatus(ToTensorFlow(ResourceExhausted("out of memory")));
    done();
  }
}

// Input 0 is the variable's handle. The attribute inside_step: a step has been
// begun for it; else it is one.
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
      const std::shared_ptr<EmbeddingStore> store = resource->store();
      return WithTableName(ctx, ComputeInStep(ctx, store.get()));
    }));
  }

  bool inside_step_ = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_STEP_KERNEL_H_
