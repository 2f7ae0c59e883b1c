// Contracts: tf_ops/ops/steps/update_log_ops.cc.

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/steps/update_log.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/steps/step_op.h"
#include "tf_ops/kernels/steps/update_attempt.h"

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
  int64_t committed = 0;
  LODESTAR_TRY(
      resource->log().Begin(numbers[0], numbers[1], &attempt, &committed));
  LODESTAR_TRY(OutputVector<int64_t>(ctx, 0, {attempt.update, attempt.number}));
  return OutputScalar(ctx, 1, committed);
}

class CommitUpdateOp : public StepOp {
 public:
  using StepOp::StepOp;

 private:
  absl::Status FindGates(OpKernelContext* ctx,
                         StepGates* gates) const override {
    return MakeAttempt(
        ctx, 0,
        [&](UpdateLog* log, const UpdateLog::Attempt& attempt, int64_t name) {
          *gates = log->GatesOf({{attempt.update, name}});
          return Status();
        });
  }

  absl::Status Write(OpKernelContext* ctx) const override {
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    return MakeAttempt(
        ctx, 0,
        [&](UpdateLog* log, const UpdateLog::Attempt& attempt, int64_t name) {
          return log->Commit(attempt, name, &parallel);
        });
  }
};

absl::Status RunCloseUpdates(OpKernelContext* ctx) {
  LogPtr resource;
  LODESTAR_TRY(FindLog(ctx, 0, &resource));
  LODESTAR_TRY(CheckRank(ctx->input(1), "below", 0));
  const std::vector<UpdateLog::Committed> committed =
      resource->log().Close(ctx->input(1).scalar<int64_t>()());
  const int64_t count = static_cast<int64_t>(committed.size());
  Tensor* output = nullptr;
  LODESTAR_TRY(ctx->allocate_output(0, {count, 2}, &output));
  for (int64_t i = 0; i < count; ++i) {
    output->matrix<int64_t>()(i, 0) = committed[i].update;
    output->matrix<int64_t>()(i, 1) = committed[i].name;
  }
  return absl::OkStatus();
}

absl::Status ReadCommitted(OpKernelContext* ctx, int at,
                           std::vector<UpdateLog::Committed>* committed) {
  const Tensor& input = ctx->input(at);
  LODESTAR_TRY(CheckRank(input, "committed", 2));
  if (input.dim_size(1) != 2) {
    return InvalidArgumentError("`committed` must have shape [K,2], got ",
                                input.shape().DebugString(), ".");
  }
  for (int64_t i = 0; i < input.dim_size(0); ++i) {
    committed->push_back(
        {input.matrix<int64_t>()(i, 0), input.matrix<int64_t>()(i, 1)});
    if (committed->back().name < 1) {
      return InvalidArgumentError("`committed[", i,
                                  "]` must have a name of at least 1, got ",
                                  committed->back().name, ".");
    }
  }
  return absl::OkStatus();
}

class SettleUpdatesOp : public StepOp {
 public:
  using StepOp::StepOp;

 private:
  absl::Status FindGates(OpKernelContext* ctx,
                         StepGates* gates) const override {
    LogPtr resource;
    LODESTAR_TRY(FindLog(ctx, 0, &resource));
    std::vector<UpdateLog::Committed> committed;
    LODESTAR_TRY(ReadCommitted(ctx, 1, &committed));
    *gates = resource->log().GatesOf(committed);
    return absl::OkStatus();
  }

  absl::Status Write(OpKernelContext* ctx) const override {
    LogPtr resource;
    LODESTAR_TRY(FindLog(ctx, 0, &resource));
    std::vector<UpdateLog::Committed> committed;
    LODESTAR_TRY(ReadCommitted(ctx, 1, &committed));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    return ToTensorFlow(resource->log().Settle(committed, &parallel));
  }
};

LODESTAR_REGISTER(UpdateLog);
LODESTAR_REGISTER_FUNCTION(BeginUpdate);
LODESTAR_REGISTER(CommitUpdate);
LODESTAR_REGISTER_FUNCTION(CloseUpdates);
LODESTAR_REGISTER(SettleUpdates);

}  // namespace
}  // namespace lodestar
