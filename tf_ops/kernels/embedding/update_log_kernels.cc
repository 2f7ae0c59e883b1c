// Contracts: tf_ops/ops/embedding/update_log_ops.cc.

#include <cstdint>

#include "tf_ops/core/base/update_log.h"
#include "tf_ops/core/rows/step_gate.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/step_kernel.h"
#include "tf_ops/kernels/embedding/update_attempt.h"

namespace lodestar {
namespace {

absl::Status RunBeginUpdate(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "run", 0));
  LODESTAR_TRY(CheckRank(ctx->input(1), "update", 0));
  LODESTAR_TRY(CheckRank(ctx->input(2), "finished", 0));
  int64_t number = 0;
  bool committed = false;
  LODESTAR_TRY(ToTensorFlow(UpdateLog::Global().Begin(
      ctx->input(0).scalar<int64_t>()(), ctx->input(1).scalar<int64_t>()(),
      ctx->input(2).scalar<int64_t>()(), &number, &committed)));
  LODESTAR_TRY(OutputScalar(ctx, 0, number));
  return OutputScalar(ctx, 1, committed);
}

class CommitUpdateOp : public AsyncOpKernel {
 public:
  explicit CommitUpdateOp(OpKernelConstruction* ctx) : AsyncOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("of_earlier_attempt", &of_earlier_));
  }

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    EnterStep(ctx, done, [this, ctx] {
      ctx->SetStatus(WithoutBadAlloc([&] { return Commit(ctx); }));
      StepGate::Global().Exit();
    });
  }

 private:
  absl::Status Commit(OpKernelContext* ctx) const {
    UpdateLog::Attempt attempt;
    LODESTAR_TRY(ReadAttempt(ctx, 0, &attempt));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    UpdateLog& log = UpdateLog::Global();
    return ToTensorFlow(of_earlier_ ? log.Finish(attempt, &parallel)
                                    : log.Commit(attempt, &parallel));
  }

  bool of_earlier_ = false;
};

LODESTAR_REGISTER_FUNCTION(BeginUpdate);
LODESTAR_REGISTER(CommitUpdate);

}  // namespace
}  // namespace lodestar
