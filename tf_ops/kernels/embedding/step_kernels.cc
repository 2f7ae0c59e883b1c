#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/rows/step_gate.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/base/variant_handle.h"
#include "tf_ops/kernels/embedding/step_kernel.h"

namespace lodestar {
namespace {

// A step that fails never gets to EndStep: then it ends with the tensor.
class BeginStepOp : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    EnterStep(ctx, done, [ctx] { ctx->SetStatus(OutputStay(ctx)); });
  }

 private:
  // Inside the gate, which it leaves if it fails.
  static absl::Status OutputStay(OpKernelContext* ctx) {
    std::unique_ptr<StepStay> stay(new (std::nothrow)
                                       StepStay(&StepGate::Global()));
    if (stay == nullptr) {
      StepGate::Global().Exit();
      return ToTensorFlow(ResourceExhausted("out of memory"));
    }
    return WithoutBadAlloc([&] {
      return OutputHandle(ctx, 0, std::shared_ptr<StepStay>(std::move(stay)));
    });
  }
};

absl::Status MoveSteps(OpKernelContext* ctx) {
  const int num_tables = (ctx->num_inputs() - 1) / 2;
  std::vector<std::shared_ptr<EmbeddingStore>> stores;
  for (int i = 1; i <= num_tables; ++i) {
    tensorflow::core::RefCountPtr<EmbeddingResource> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(i), &resource));
    LODESTAR_TRY(CheckRank(ctx->input(num_tables + i), "next_steps", 0));
    stores.push_back(resource->store());
  }
  // Steps that are inside together would leave some variables with the step
  // of one of them, and some with that of another.
  static Mutex mutex;
  MutexLock lock(&mutex);
  for (int i = 0; i < num_tables; ++i) {
    stores[i]->MoveStep(ctx->input(1 + num_tables + i).scalar<int64_t>()());
  }
  return absl::OkStatus();
}

absl::Status RunEndStep(OpKernelContext* ctx) {
  std::shared_ptr<StepStay> stay;
  LODESTAR_TRY(ReadHandle(ctx->input(0), "step", "BeginStep", &stay));
  const absl::Status status = MoveSteps(ctx);
  stay->End();
  return status;
}

LODESTAR_REGISTER(BeginStep);
LODESTAR_REGISTER_FUNCTION(EndStep);

}  // namespace
}  // namespace lodestar
