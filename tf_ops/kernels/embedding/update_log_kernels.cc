// Contracts: tf_ops/ops/embedding/update_log_ops.cc.

#include <cstdint>
#include <string>

#include "tf_ops/core/base/update_log.h"
#include "tf_ops/core/rows/step_gate.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/step_kernel.h"
#include "tf_ops/kernels/embedding/update_attempt.h"

namespace lodestar {
namespace {

using LogPtr = tensorflow::core::RefCountPtr<UpdateLogResource>;

class UpdateLogOp : public Kernel {
 public:
  using Kernel::Kernel;

  absl::Status Run(OpKernelContext* ctx) override {
    return OutputResource<UpdateLogResource>(
        ctx, *this,
        [](UpdateLogResource** made) {
          *made = new UpdateLogResource;
          return absl::OkStatus();
        },
        [](const UpdateLogResource&, const std::string&) {
          return absl::OkStatus();
        });
  }
};

absl::Status RunBeginUpdate(OpKernelContext* ctx) {
  LogPtr resource;
  LODESTAR_TRY(FindLog(ctx, 0, &resource));
  LODESTAR_TRY(CheckPair(ctx, 1, "update"));
  const Span<const int64_t> numbers = FlatSpan<int64_t>(ctx->input(1));
  UpdateLog::Attempt attempt;
  bool committed = false;
  LODESTAR_TRY(
      resource->log().Begin(numbers[0], numbers[1], &attempt, &committed));
  LODESTAR_TRY(OutputVector<int64_t>(ctx, 0, {attempt.update, attempt.number}));
  return OutputScalar(ctx, 1, committed);
}

// One whose writes are a step.
class WritingOp : public AsyncOpKernel {
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

class CommitUpdateOp : public WritingOp {
 public:
  explicit CommitUpdateOp(OpKernelConstruction* ctx) : WritingOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("of_earlier_attempt", &of_earlier_));
  }

 private:
  absl::Status Write(OpKernelContext* ctx) const override {
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    return MakeAttempt(ctx, 0,
                       [&](UpdateLog* log, const UpdateLog::Attempt& attempt) {
                         return of_earlier_ ? log->Finish(attempt, &parallel)
                                            : log->Commit(attempt, &parallel);
                       });
  }

  bool of_earlier_ = false;
};

absl::Status RunCloseUpdates(OpKernelContext* ctx) {
  LogPtr resource;
  LODESTAR_TRY(FindLog(ctx, 0, &resource));
  LODESTAR_TRY(CheckRank(ctx->input(1), "below", 0));
  return OutputVector(ctx, 0,
                      resource->log().Close(ctx->input(1).scalar<int64_t>()()));
}

class SettleUpdatesOp : public WritingOp {
 public:
  using WritingOp::WritingOp;

 private:
  absl::Status Write(OpKernelContext* ctx) const override {
    LogPtr resource;
    LODESTAR_TRY(FindLog(ctx, 0, &resource));
    LODESTAR_TRY(CheckRank(ctx->input(1), "updates", 1));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    return ToTensorFlow(
        resource->log().Settle(FlatSpan<int64_t>(ctx->input(1)), &parallel));
  }
};

LODESTAR_REGISTER(UpdateLog);
LODESTAR_REGISTER_FUNCTION(BeginUpdate);
LODESTAR_REGISTER(CommitUpdate);
LODESTAR_REGISTER_FUNCTION(CloseUpdates);
LODESTAR_REGISTER(SettleUpdates);

}  // namespace
}  // namespace lodestar
