#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/base/variant_handle.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/table_kernel.h"
#include "tf_ops/kernels/steps/step_op.h"

namespace lodestar {
namespace {

// If the step fails before EndStep, it ends when the output tensor is
// destroyed.
class BeginStepOp : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    EnterStep(
        ctx, done,
        [&](StepGates* gates) {
          return FindGates(ctx, ctx->num_inputs(), gates);
        },
        [ctx](StepScope scope) {
          ctx->SetStatus(WithoutBadAlloc([&] {
            return OutputHandle(ctx, 0,
                                std::make_shared<StepScope>(std::move(scope)));
          }));
        });
  }
};

absl::Status MoveSteps(OpKernelContext* ctx) {
  const int num_tables = (ctx->num_inputs() - 1) / 2;
  const KernelExecution execution(ctx);
  std::vector<std::shared_ptr<Table>> tables;
  std::vector<Table::NextStep> steps;
  for (int i = 1; i <= num_tables; ++i) {
    tensorflow::core::RefCountPtr<EmbeddingResource> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(i), &resource));
    const Tensor& next_step = ctx->input(num_tables + i);
    LODESTAR_TRY(CheckRank(next_step, "next_steps", 0));
    std::shared_ptr<Table> table;
    LODESTAR_TRY(resource->GetTable(execution.on().on_gpu(), &table));
    steps.push_back({table.get(), next_step.scalar<int64_t>()()});
    tables.push_back(std::move(table));
  }
  return ToTensorFlow(
      Table::MoveSteps(Span<Table::NextStep>(steps), execution.on()));
}

absl::Status RunEndStep(OpKernelContext* ctx) {
  std::shared_ptr<StepScope> stay;
  LODESTAR_TRY(ReadHandle(ctx->input(0), "step", "BeginStep", &stay));
  const absl::Status status = MoveSteps(ctx);
  stay->End();
  return status;
}

// For a step of tables on a GPU. The handle of the step is also in host memory;
// see OutputHandle.
LODESTAR_REGISTER_TABLE(BeginStep, BeginStepOp, .HostMemory("handles"));
LODESTAR_REGISTER_TABLE(EndStep, FunctionKernel<RunEndStep>,
                        .HostMemory("handles").HostMemory("next_steps"));

}  // namespace
}  // namespace lodestar
