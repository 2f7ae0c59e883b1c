// Contract: tf_ops/ops/embedding/embedding_partition_ops.cc.

#if LODESTAR_CUDA

#include <cstdint>
#include <vector>

#include "tf_ops/core/device/batch/device_partition.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/table_kernel.h"

namespace lodestar {
namespace {

// Outputs the rows of `tensor` by part, in the list `output`.
absl::Status OutputParts(OpKernelContext* ctx, const DeviceStream& on,
                         const DevicePartition& parts, const Tensor& tensor,
                         const char* output) {
  OpOutputList list;
  LODESTAR_TRY(ctx->output_list(output, &list));
  std::vector<void*> data;
  int64_t dim = 0;
  for (int p = 0; p < list.size(); ++p) {
    TensorShape shape;
    LODESTAR_TRY(ReplaceRows(tensor.shape(), parts.size(p), &shape, &dim));
    Tensor* part = nullptr;
    LODESTAR_TRY(list.allocate(p, shape, &part));
    data.push_back(CopyTarget<char>(part));
  }
  return ToTensorFlow(parts.SplitRows(on, CopySource<char>(tensor),
                                      CopyWidth<char>(tensor, dim), data));
}

class EmbeddingPartitionRowsOnGpuOp : public Kernel {
 public:
  explicit EmbeddingPartitionRowsOnGpuOp(OpKernelConstruction* ctx)
      : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_parts", &num_parts_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& ids = ctx->input(0);
    const Tensor& rows = ctx->input(1);
    LODESTAR_TRY(CheckRank(ids, "ids", 1));
    LODESTAR_TRY(CheckRowsOfIds(rows, ids.NumElements()));
    Tensor* places = nullptr;
    LODESTAR_TRY(ctx->allocate_output(2 * num_parts_, ids.shape(), &places));
    const KernelStream stream(ctx);
    DevicePartition parts;
    LODESTAR_TRY(parts.Init(stream.on(), FlatSpan<int64_t>(ids), num_parts_,
                            places->flat<int64_t>().data()));
    LODESTAR_TRY(OutputParts(ctx, stream.on(), parts, ids, "part_ids"));
    return OutputParts(ctx, stream.on(), parts, rows, "part_rows");
  }

 private:
  int num_parts_ = 0;
};

// Gradients of tables. Others, such as counts, are in host memory.
LODESTAR_REGISTER_ON_GPU(EmbeddingPartitionRows, EmbeddingPartitionRowsOnGpuOp,
                         .TypeConstraint<float>("T"));

}  // namespace
}  // namespace lodestar

#endif  // LODESTAR_CUDA
