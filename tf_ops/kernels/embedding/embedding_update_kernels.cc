// Contracts: tf_ops/ops/embedding/embedding_ops.cc.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/sparse_optimizer.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/table_kernel.h"
#include "tf_ops/kernels/embedding/update_inputs.h"
#include "tf_ops/kernels/steps/step_op.h"

namespace lodestar {
namespace {

class EmbeddingCheckApplyOp : public TableKernel {
 public:
  explicit EmbeddingCheckApplyOp(OpKernelConstruction* ctx) : TableKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadOptimizer(ctx, &optimizer_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("additions", &additions_));
    optimizer_.slot_inits.resize(optimizer_.slot_names.size());
    OP_REQUIRES_OK(ctx, ToTensorFlow(optimizer_.Check()));
  }

  absl::Status RunOn(const TableCall& call) override {
    return WithTableName(call.ctx, Check(call));
  }

 private:
  absl::Status Check(const TableCall& call) const {
    TableUpdate update;
    LODESTAR_TRY(ReadGradients(call.ctx->input(1), call.ctx->input(2),
                               call.table, &update));
    return ToTensorFlow(
        call.table->CheckUpdate(update, optimizer_, additions_, call.on));
  }

  AttachedOptimizer optimizer_;
  int64_t additions_ = 0;
};

// Updates variables atomically, as a step or as part of one. The inputs are one
// handle, ids, gradients, hyperparameters and next step per variable.
class UpdateKernel : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) final {
    if (inside_step_) {
      Update(ctx);
      done();
      return;
    }
    const KernelGpu gpu(ctx);
    EnterStep(
        ctx, done,
        [&](StepGates* gates) { return FindGates(ctx, num_tables(), gates); },
        [this, ctx, gpu](StepScope) {
          gpu.MakeCurrent();
          Update(ctx);
        });
  }

 protected:
  std::vector<UpdateAttributes> attributes_;  // by variable
  bool inside_step_ = false;

 private:
  int num_tables() const { return static_cast<int>(attributes_.size()); }
  void Update(OpKernelContext* ctx) const {
    ctx->SetStatus(WithoutBadAlloc([&] { return Write(ctx); }));
  }
  absl::Status Write(OpKernelContext* ctx) const {
    const KernelExecution execution(ctx);
    std::vector<std::shared_ptr<Table>> tables(num_tables());
    for (int t = 0; t < num_tables(); ++t) {
      tensorflow::core::RefCountPtr<EmbeddingResource> resource;
      LODESTAR_TRY(FindResource(ctx, ctx->input(t), &resource));
      LODESTAR_TRY(resource->GetTable(execution.on().on_gpu(), &tables[t]));
    }
    LODESTAR_TRY(CheckDifferent(tables));
    std::vector<TableUpdate> updates(tables.size());
    for (int t = 0; t < num_tables(); ++t) {
      LODESTAR_TRY(
          WithTableName(ctx,
                        attributes_[t].Read(ctx, num_tables() + t, num_tables(),
                                            tables[t].get(), &updates[t]),
                        t));
    }
    int64_t failed = 0;
    const Status status = tables[0]->Update(updates, execution.on(), &failed);
    return WithTableName(ctx, ToTensorFlow(status), static_cast<int>(failed));
  }
};

class EmbeddingApplyOp : public UpdateKernel {
 public:
  explicit EmbeddingApplyOp(OpKernelConstruction* ctx) : UpdateKernel(ctx) {
    attributes_.resize(1);
    OP_REQUIRES_OK(ctx, attributes_[0].Init(ctx));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("inside_step", &inside_step_));
  }
};

class EmbeddingApplyAllOp : public UpdateKernel {
 public:
  explicit EmbeddingApplyAllOp(OpKernelConstruction* ctx) : UpdateKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadAttributes(ctx));
  }

 private:
  absl::Status ReadAttributes(OpKernelConstruction* ctx) {
    int num_tables = 0;
    std::vector<std::string> optimizers;
    std::vector<float> slot_inits;
    std::vector<bool> create_missing;
    Nonfinite nonfinite;
    LODESTAR_TRY(ctx->GetAttr("num_tables", &num_tables));
    LODESTAR_TRY(ctx->GetAttr("optimizers", &optimizers));
    LODESTAR_TRY(ctx->GetAttr("slot_inits", &slot_inits));
    LODESTAR_TRY(ctx->GetAttr("create_missing", &create_missing));
    LODESTAR_TRY(ctx->GetAttr("inside_step", &inside_step_));
    LODESTAR_TRY(ReadNonfinite(ctx, &nonfinite));
    if (static_cast<int>(optimizers.size()) != num_tables ||
        static_cast<int>(create_missing.size()) != num_tables) {
      return InvalidArgumentError("`optimizers` has ", optimizers.size(),
                                  " items and `create_missing` ",
                                  create_missing.size(), ", but there are ",
                                  num_tables, " variables.");
    }
    size_t used = 0;
    for (int t = 0; t < num_tables; ++t) {
      std::vector<std::string> slots;
      SparseOptimizer::SlotNames(optimizers[t], &slots);
      const size_t end = used + slots.size();
      std::vector<float> own;
      if (end <= slot_inits.size()) {
        own.assign(slot_inits.begin() + used, slot_inits.begin() + end);
      }
      used = end;
      attributes_.push_back({optimizers[t], own, create_missing[t], nonfinite});
    }
    if (used == slot_inits.size()) return absl::OkStatus();
    return InvalidArgumentError("`slot_inits` has ", slot_inits.size(),
                                " elements, but `optimizers` have ", used,
                                " optimizer slots.");
  }
};

LODESTAR_REGISTER_TABLE(EmbeddingCheckApply, EmbeddingCheckApplyOp,
                        .HostMemory("handle"));
LODESTAR_REGISTER_TABLE(EmbeddingApply, EmbeddingApplyOp,
                        .HostMemory("handle")
                            .HostMemory("hyperparameters")
                            .HostMemory("next_step"));
LODESTAR_REGISTER_TABLE(EmbeddingApplyAll, EmbeddingApplyAllOp,
                        .HostMemory("handles")
                            .HostMemory("hyperparameters")
                            .HostMemory("next_steps"));

}  // namespace
}  // namespace lodestar
