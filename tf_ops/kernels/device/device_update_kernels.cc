// Contracts: tf_ops/ops/embedding/embedding_ops.cc.

#if LODESTAR_CUDA

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/device/device_batch.h"
#include "tf_ops/core/device/device_gradient.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/sparse_optimizer.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/device/device_kernel_util.h"
#include "tf_ops/kernels/embedding/unique_ids.h"
#include "tf_ops/kernels/embedding/update_gradients.h"

namespace lodestar {
namespace {

absl::Status RunEmbeddingGradientOnGpu(OpKernelContext* ctx) {
  const Tensor& gradient = ctx->input(0);
  LODESTAR_TRY(CheckRank(gradient, "gradient", 2));
  LODESTAR_TRY(CheckRank(ctx->input(1), "positions", 1));
  LODESTAR_TRY(CheckRank(ctx->input(2), "unique_ids", 1));
  const int64_t num_ids = ctx->input(1).NumElements();
  const int64_t num_unique = ctx->input(2).NumElements();
  if (gradient.dim_size(0) != num_ids) {
    return InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                " rows, but `positions` has ", num_ids,
                                " elements.");
  }
  const int64_t dim = gradient.dim_size(1);
  const RowType type = RowTypeOf(gradient.dtype());
  Tensor* output = nullptr;
  LODESTAR_TRY(ctx->allocate_output(0, {num_unique, dim}, &output));
  DeviceSums sums;
  LODESTAR_TRY(sums.Init(ctx, output));
  const KernelStream stream(ctx);
  LODESTAR_TRY(SumByPosition(stream.on(), type, RowData(gradient),
                             ctx->input(1).flat<int64_t>().data(), num_ids,
                             num_unique, dim, sums.data()));
  return sums.Round(stream.on());
}

// Gradients summed by unique id. Those of ids that are known to be unique are
// used as they are.
class SummedOnDevice {
 public:
  // Requires: CheckGradients.
  Status Sum(const DeviceStream& on, const Tensor& ids, const Tensor& gradients,
             const DeviceStore& store) {
    const int64_t n = ids.NumElements();
    if (PlanOf(ids) != nullptr) {
      ids_ = IdsOf(ids);
      sums_ = RowData(gradients);
      return Status();
    }
    const RowType computed = ComputeType(store.type());
    LODESTAR_RETURN_IF_ERROR(batch_.Unique(on, IdsOf(ids), nullptr));
    LODESTAR_RETURN_IF_ERROR(
        memory_.Allocate(on.memory, n * store.dim() * SizeOf(computed),
                         "the sums of gradients"));
    ids_ = batch_.ids();
    sums_ = memory_.data();
    return SumByPosition(on, computed, RowData(gradients), batch_.positions(),
                         n, n, store.dim(), memory_.data());
  }
  DeviceStore::Ids ids() const { return ids_; }
  const void* sums() const { return sums_; }

 private:
  DeviceStore::Ids ids_;
  const void* sums_ = nullptr;
  DeviceBatch batch_;
  DeviceArray<char> memory_;
};

absl::Status CheckFinite(const DeviceStream& on, const DeviceStore& store,
                         const SummedOnDevice& summed, NonfiniteRows* nonfinite,
                         int64_t* count, int64_t* first_id) {
  LODESTAR_TRY(nonfinite->Find(on, store.type(), summed.sums(), summed.ids(),
                               store.dim()));
  return ToTensorFlow(nonfinite->Count(on, count, first_id));
}

class EmbeddingCheckApplyOnGpuOp : public DeviceKernel {
 public:
  explicit EmbeddingCheckApplyOnGpuOp(OpKernelConstruction* ctx)
      : DeviceKernel(ctx) {
    int64_t additions = 0;
    OP_REQUIRES_OK(ctx, ReadOptimizer(ctx, &optimizer_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("additions", &additions));
    optimizer_.slot_inits.resize(optimizer_.slot_names.size());
    OP_REQUIRES_OK(ctx, ToTensorFlow(optimizer_.Check()));
    OP_REQUIRES(ctx, additions == 0 && !optimizer_.unfused(),
                absl::UnimplementedError(
                    "a table on a GPU requires an optimizer with a fused "
                    "update rule and does not support gradient accumulation."));
  }

  absl::Status RunOn(const DeviceCall& call) override {
    return WithTableName(call.ctx, Check(call));
  }

 private:
  absl::Status Check(const DeviceCall& call) const {
    const Tensor& ids = call.ctx->input(1);
    const Tensor& gradients = call.ctx->input(2);
    LODESTAR_TRY(CheckGradients(ids, gradients, *call.store));
    LODESTAR_TRY(call.store->CheckOptimizer(optimizer_));
    SummedOnDevice summed;
    LODESTAR_TRY(summed.Sum(call.on, ids, gradients, *call.store));
    NonfiniteRows nonfinite;
    int64_t count = 0;
    int64_t first_id = 0;
    LODESTAR_TRY(CheckFinite(call.on, *call.store, summed, &nonfinite, &count,
                             &first_id));
    return count == 0 ? absl::OkStatus() : NonfiniteError(first_id);
  }

  AttachedOptimizer optimizer_;
};

// A checked update of one variable.
class DeviceUpdate {
 public:
  absl::Status Init(OpKernelContext* ctx, const DeviceStream& on, int first,
                    int stride, std::string optimizer,
                    std::vector<float> slot_inits, bool create_missing,
                    const std::string& nonfinite, DeviceStore* store) {
    const Tensor& ids = ctx->input(first);
    const Tensor& gradients = ctx->input(first + stride);
    const Tensor& hyperparameters = ctx->input(first + 2 * stride);
    const Tensor& next_step = ctx->input(first + 3 * stride);
    LODESTAR_TRY(CheckGradients(ids, gradients, *store));
    LODESTAR_TRY(CheckRank(hyperparameters, "hyperparameters", 1));
    LODESTAR_TRY(CheckRank(next_step, "next_step", 0));
    SparseOptimizer checked;
    LODESTAR_TRY(ToTensorFlow(SparseOptimizer::Create(
        optimizer, FlatSpan<float>(hyperparameters), &checked)));
    LODESTAR_TRY(summed_.Sum(on, ids, gradients, *store));
    slot_inits_ = std::move(slot_inits);
    update_.unique_ids = summed_.ids();
    update_.gradients = summed_.sums();
    update_.name = std::move(optimizer);
    update_.hyperparameters = FlatSpan<float>(hyperparameters);
    update_.slot_inits = slot_inits_;
    update_.create_missing = create_missing;
    update_.next_step = next_step.scalar<int64_t>()();
    if (nonfinite == "pass") return absl::OkStatus();
    int64_t first_id = 0;
    LODESTAR_TRY(CheckFinite(on, *store, summed_, &nonfinite_, &num_nonfinite_,
                             &first_id));
    if (num_nonfinite_ == 0) return absl::OkStatus();
    if (nonfinite == "raise") return NonfiniteError(first_id);
    update_.skipped = nonfinite_.flags();
    return absl::OkStatus();
  }

  absl::Status Prepare(const DeviceStream& on, DeviceStore* store) const {
    return ToTensorFlow(store->Prepare(on, update_));
  }
  // Call after Prepare.
  absl::Status Write(const DeviceStream& on, DeviceStore* store) const {
    LODESTAR_TRY(store->UpdateRows(on, update_));
    store->CountNonfiniteGradients(num_nonfinite_);
    return absl::OkStatus();
  }

 private:
  SummedOnDevice summed_;
  NonfiniteRows nonfinite_;
  std::vector<float> slot_inits_;
  DeviceStore::Update update_;
  int64_t num_nonfinite_ = 0;
};

class EmbeddingApplyOnGpuOp : public DeviceKernel {
 public:
  explicit EmbeddingApplyOnGpuOp(OpKernelConstruction* ctx)
      : DeviceKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer", &optimizer_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_inits", &slot_inits_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("create_missing", &create_missing_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("nonfinite", &nonfinite_));
  }

  absl::Status RunOn(const DeviceCall& call) override {
    return WithTableName(call.ctx, Update(call));
  }

 private:
  absl::Status Update(const DeviceCall& call) const {
    DeviceUpdate update;
    LODESTAR_TRY(update.Init(call.ctx, call.on, 1, 1, optimizer_, slot_inits_,
                             create_missing_, nonfinite_, call.store));
    LODESTAR_TRY(update.Prepare(call.on, call.store));
    return update.Write(call.on, call.store);
  }

  std::string optimizer_;
  std::vector<float> slot_inits_;
  bool create_missing_ = false;
  std::string nonfinite_;
};

// Updates several variables atomically.
class EmbeddingApplyAllOnGpuOp : public Kernel {
 public:
  explicit EmbeddingApplyAllOnGpuOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    std::vector<float> slot_inits;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizers", &optimizers_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_inits", &slot_inits));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("create_missing", &create_missing_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("nonfinite", &nonfinite_));
    int num_tables = 0;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_tables", &num_tables));
    OP_REQUIRES(ctx,
                static_cast<int>(optimizers_.size()) == num_tables &&
                    static_cast<int>(create_missing_.size()) == num_tables,
                InvalidArgumentError("`optimizers` has ", optimizers_.size(),
                                     " items and `create_missing` ",
                                     create_missing_.size(), ", but there are ",
                                     num_tables, " variables."));
    auto next = slot_inits.begin();
    for (const std::string& optimizer : optimizers_) {
      std::vector<std::string> slots;
      SparseOptimizer::SlotNames(optimizer, &slots);
      OP_REQUIRES(
          ctx, slot_inits.end() - next >= static_cast<int64_t>(slots.size()),
          InvalidArgumentError(
              "`slot_inits` has ", slot_inits.size(),
              " elements, fewer than `optimizers` have optimizer slots."));
      slot_inits_.emplace_back(next, next + slots.size());
      next += slots.size();
    }
    OP_REQUIRES(ctx, next == slot_inits.end(),
                InvalidArgumentError(
                    "`slot_inits` has ", slot_inits.size(),
                    " elements, more than `optimizers` have optimizer slots."));
  }

 protected:
  absl::Status Run(OpKernelContext* ctx) override {
    const int count = static_cast<int>(optimizers_.size());
    const KernelStream stream(ctx);
    std::vector<std::shared_ptr<DeviceStore>> stores(count);
    for (int t = 0; t < count; ++t) {
      tensorflow::core::RefCountPtr<EmbeddingResource> resource;
      LODESTAR_TRY(FindResource(ctx, ctx->input(t), &resource));
      LODESTAR_TRY(resource->GetStore(&stores[t]));
    }
    std::vector<DeviceUpdate> updates(count);
    const auto named = [&](int t, const absl::Status& status) {
      return WithTableName(ctx, status, t);
    };
    for (int t = 0; t < count; ++t) {
      LODESTAR_TRY(named(
          t, updates[t].Init(ctx, stream.on(), count + t, count, optimizers_[t],
                             slot_inits_[t], create_missing_[t], nonfinite_,
                             stores[t].get())));
    }
    for (int t = 0; t < count; ++t) {
      LODESTAR_TRY(named(t, updates[t].Prepare(stream.on(), stores[t].get())));
    }
    for (int t = 0; t < count; ++t) {
      LODESTAR_TRY(named(t, updates[t].Write(stream.on(), stores[t].get())));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::string> optimizers_;
  std::vector<std::vector<float>> slot_inits_;
  std::vector<bool> create_missing_;
  std::string nonfinite_;
};

LODESTAR_REGISTER_ON_GPU(EmbeddingGradient,
                         FunctionKernel<RunEmbeddingGradientOnGpu>);
LODESTAR_REGISTER_ON_GPU(EmbeddingCheckApply, EmbeddingCheckApplyOnGpuOp,
                         .HostMemory("handle"));
LODESTAR_REGISTER_ON_GPU(EmbeddingApply, EmbeddingApplyOnGpuOp,
                         .HostMemory("handle")
                             .HostMemory("hyperparameters")
                             .HostMemory("next_step"));
LODESTAR_REGISTER_ON_GPU(EmbeddingApplyAll, EmbeddingApplyAllOnGpuOp,
                         .HostMemory("handles")
                             .HostMemory("hyperparameters")
                             .HostMemory("next_steps"));

}  // namespace
}  // namespace lodestar

#endif  // LODESTAR_CUDA
