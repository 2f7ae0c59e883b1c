// Contracts: tf_ops/ops/embedding/embedding_ops.cc. On a GPU, positions are in
// device memory and cannot be checked; invalid ones are treated as padding.

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/embedding/embedding_gradient.h"
#include "tf_ops/core/table/lookup_plan.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/table_kernel.h"
#include "tf_ops/kernels/embedding/unique_ids.h"

#if LODESTAR_CUDA
#include "tf_ops/core/device/batch/device_batch.h"
#include "tf_ops/core/device/batch/device_gradient.h"
#endif

namespace lodestar {
namespace {

class EmbeddingUniqueOp : public Kernel {
 public:
  explicit EmbeddingUniqueOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_padding", &use_padding_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("padding_id", &padding_id_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(0));
    const int64_t* const padding_id = use_padding_ ? &padding_id_ : nullptr;
    Tensor* positions = nullptr;
    LODESTAR_TRY(ctx->allocate_output(1, {ids.size()}, &positions));
    Tensor unique_ids;
    LookupPlan* plan = nullptr;
    const KernelExecution execution(ctx);
#if LODESTAR_CUDA
    if (execution.on().on_gpu()) {
      const DeviceStream& on = execution.on().stream();
      DeviceBatch batch;
      LODESTAR_TRY(
          batch.Unique(on, {ids.data(), ids.size(), nullptr}, padding_id));
      int64_t count = 0;
      LODESTAR_TRY(batch.Count(on, &count));
      LODESTAR_TRY(AllocateUniqueIds(ctx, count, &unique_ids, &plan));
      ctx->set_output(0, unique_ids);
      return ToTensorFlow(batch.Copy(on, count,
                                     unique_ids.flat<int64_t>().data(),
                                     positions->flat<int64_t>().data()));
    }
#endif
    std::vector<int64_t> unique;
    BatchUnique(ids, padding_id, &unique, FlatSpan<int64_t>(positions));
    LODESTAR_TRY(CopyUniqueIds(ctx, unique, &unique_ids, &plan));
    ctx->set_output(0, unique_ids);
    return absl::OkStatus();
  }

 private:
  bool use_padding_ = false;
  int64_t padding_id_ = 0;
};

absl::Status RunEmbeddingGradient(OpKernelContext* ctx) {
  const Tensor& gradient = ctx->input(0);
  LODESTAR_TRY(CheckRank(gradient, "gradient", 2));
  if (gradient.dim_size(1) > kMaxDim) {
    return InvalidArgumentError("`gradient` must have a last axis of at most ",
                                kMaxDim, ", got ", gradient.dim_size(1), ".");
  }
  LODESTAR_TRY(CheckRank(ctx->input(1), "positions", 1));
  LODESTAR_TRY(CheckRank(ctx->input(2), "unique_ids", 1));
  const Span<const int64_t> positions = FlatSpan<int64_t>(ctx->input(1));
  const int64_t num_unique = ctx->input(2).NumElements();
  if (gradient.dim_size(0) != positions.size()) {
    return InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                " rows, but `positions` has ", positions.size(),
                                " elements.");
  }
  const int dim = static_cast<int>(gradient.dim_size(1));
  const KernelExecution execution(ctx);
  const Execution& on = execution.on();
  if (!on.on_gpu()) LODESTAR_TRY(CheckPositions(positions, num_unique));
  Tensor* output = nullptr;
  LODESTAR_TRY(ctx->allocate_output(0, {num_unique, dim}, &output));
  SumTensor sums;
  LODESTAR_TRY(sums.Init(ctx, output));
#if LODESTAR_CUDA
  if (on.on_gpu()) {
    LODESTAR_TRY(SumByPosition(on.stream(), sums.type(), RowData(gradient),
                               positions.data(), positions.size(), num_unique,
                               dim, sums.data()));
    return sums.Round(on);
  }
#endif
  VisitRowType(sums.type(), [&](auto zero) {
    using T = decltype(zero);
    SumByPosition(reinterpret_cast<const T*>(RowData(gradient)), positions,
                  num_unique, dim, sums.data(), on.parallel());
  });
  return sums.Round(on);
}

LODESTAR_REGISTER_TABLE(EmbeddingUnique, EmbeddingUniqueOp);
LODESTAR_REGISTER_TABLE(EmbeddingGradient,
                        FunctionKernel<RunEmbeddingGradient>);

}  // namespace
}  // namespace lodestar
