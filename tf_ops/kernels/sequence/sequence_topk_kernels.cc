#include "tf_ops/core/sequence/sequence_topk.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"
#if LODESTAR_CUDA
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda_op_util.h"
#endif

namespace lodestar {
namespace {

class TopkKernel : public Kernel {
 public:
  explicit TopkKernel(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("channels", &channels_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("k", &k_));
  }

 protected:
  // The checked splits, in host memory, and the output.
  struct Matrices {
    Span<const int64_t> x;
    Span<const int64_t> row;
    Span<const int64_t> col;
    Tensor* index = nullptr;
  };
  absl::Status Prepare(OpKernelContext* ctx, Matrices* m) const {
    const Tensor& values = ctx->input(0);
    LODESTAR_TRY(CheckRank(values, "values", 1));
    // Only x has values whose number is known.
    LODESTAR_TRY(CheckSplits(ctx->input(1), "x_splits", values.NumElements()));
    LODESTAR_TRY(CheckSplits(ctx->input(2), "row_splits"));
    LODESTAR_TRY(CheckSplits(ctx->input(3), "col_splits"));
    m->x = FlatSpan<int64_t>(ctx->input(1));
    m->row = FlatSpan<int64_t>(ctx->input(2));
    m->col = FlatSpan<int64_t>(ctx->input(3));
    LODESTAR_TRY(CheckMatrixSizes(m->x, m->row, m->col, channels_));
    TensorShape shape({m->row[m->row.size() - 1]});
    LODESTAR_TRY(shape.AddDimWithStatus(channels_));
    LODESTAR_TRY(shape.AddDimWithStatus(k_));
    return AllocateOutput(ctx, 0, shape, &m->index);
  }

  int64_t channels_ = 1;
  int64_t k_ = 1;
};

template <typename T>
class SequenceTopkOp : public TopkKernel {
 public:
  using TopkKernel::TopkKernel;
  absl::Status Run(OpKernelContext* ctx) override {
    Matrices m;
    LODESTAR_TRY(Prepare(ctx, &m));
    if (m.index->NumElements() == 0) return absl::OkStatus();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceTopk<T>(ctx->input(0).flat<T>().data(), m.x, m.row, m.col,
                    channels_, k_, m.index->flat<int64_t>().data(), &parallel);
    return absl::OkStatus();
  }
};

LODESTAR_REGISTER_FLOATS(LODESTAR_REGISTER_TYPE, SequenceTopk);

#if LODESTAR_CUDA

class SequenceTopkGpuOp : public TopkKernel {
 public:
  using TopkKernel::TopkKernel;
  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    Matrices m;
    LODESTAR_TRY(Prepare(ctx, &m));
    if (m.index->NumElements() == 0) return absl::OkStatus();
    DeviceBytes buffers[3];
    DeviceMatrices matrices;
    matrices.channels = channels_;
    LODESTAR_TRY(CopySplits(ctx, m.x, &buffers[0], &matrices.values));
    LODESTAR_TRY(CopySplits(ctx, m.row, &buffers[1], &matrices.rows));
    LODESTAR_TRY(CopySplits(ctx, m.col, &buffers[2], &matrices.columns));
    return ToTensorFlow(
        LaunchSequenceTopk(CudaStream(ctx), NumberOf(values.dtype()),
                           values.data(), matrices, k_,
                           m.index->flat<int64_t>().data()),
        "top k");
  }

 private:
  static absl::Status CopySplits(OpKernelContext* ctx,
                                 Span<const int64_t> splits,
                                 DeviceBytes* buffer, DeviceSplits* device) {
    LODESTAR_TRY(buffer->CopyFrom(ctx, splits));
    *device = buffer->splits(splits[splits.size() - 1]);
    return absl::OkStatus();
  }
};

LODESTAR_REGISTER_ON_GPU(SequenceTopk, SequenceTopkGpuOp,
                         .TypeConstraint("T", kFloats)
                             .HostMemory("x_splits")
                             .HostMemory("row_splits")
                             .HostMemory("col_splits"));

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
