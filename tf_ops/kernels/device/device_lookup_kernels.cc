// Contracts: tf_ops/ops/embedding/embedding_ops.cc. Positions are in device
// memory and cannot be checked; invalid ones are treated as padding.

#if LODESTAR_CUDA

#include <cstdint>
#include <string>

#include "tf_ops/core/device/device_batch.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/device/device_kernel_util.h"

namespace lodestar {
namespace {

// Outputs the unique ids of a batch. `unique` is their number.
absl::Status OutputBatch(OpKernelContext* ctx, const DeviceStream& on,
                         const DeviceBatch& batch, int64_t num_ids,
                         int unique_output, int64_t* unique, int64_t* padding) {
  LODESTAR_TRY(batch.Count(on, unique, padding));
  Tensor ids;
  LODESTAR_TRY(CopyUniqueIds(ctx, on, batch.ids().data, *unique, &ids));
  ctx->set_output(unique_output, ids);
  Tensor* positions = nullptr;
  LODESTAR_TRY(ctx->allocate_output(unique_output + 1, {num_ids}, &positions));
  return ToTensorFlow(CopyOnDevice(on, batch.positions(),
                                   num_ids * sizeof(int64_t),
                                   positions->flat<int64_t>().data()));
}

class EmbeddingUniqueOnGpuOp : public Kernel {
 public:
  explicit EmbeddingUniqueOnGpuOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_padding", &use_padding_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("padding_id", &padding_id_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    const KernelStream stream(ctx);
    DeviceBatch batch;
    LODESTAR_TRY(batch.Unique(stream.on(), IdsOf(ctx->input(0)),
                              use_padding_ ? &padding_id_ : nullptr));
    int64_t unique = 0;
    return OutputBatch(ctx, stream.on(), batch, ctx->input(0).NumElements(), 0,
                       &unique, nullptr);
  }

 private:
  bool use_padding_ = false;
  int64_t padding_id_ = 0;
};

LODESTAR_REGISTER_ON_GPU(EmbeddingUnique, EmbeddingUniqueOnGpuOp);

}  // namespace
}  // namespace lodestar

#endif  // LODESTAR_CUDA
