#include <string>

#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/core/sequence/sequence_pool.h"
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

class CombinerKernel : public Kernel {
 public:
  explicit CombinerKernel(OpKernelConstruction* ctx) : Kernel(ctx) {
    std::string combiner;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("combiner", &combiner));
    OP_REQUIRES_OK(ctx, ToTensorFlow(ParseCombiner(combiner, &combiner_)));
  }

 protected:
  // The inputs values [N, ...] and row_splits [B + 1], and the outputs [B, ...]
  // and index.
  struct Pooling {
    int64_t num_rows = 0;
    int64_t batch = 0;
    int64_t dim = 0;
    Tensor* pooled = nullptr;
    Tensor* winners = nullptr;
  };
  absl::Status Prepare(OpKernelContext* ctx, Pooling* p) const {
    const Tensor& values = ctx->input(0);
    const Tensor& splits = ctx->input(1);
    LODESTAR_TRY(CheckDeviceSequences(values, "values", splits));
    LODESTAR_TRY(CheckRank(ctx->input(2), "pad_value", 0));
    p->num_rows = values.dim_size(0);
    p->batch = splits.NumElements() - 1;
    TensorShape shape;
    LODESTAR_TRY(ReplaceRows(values.shape(), p->batch, &shape, &p->dim));
    LODESTAR_TRY(AllocateOutput(ctx, 0, shape, &p->pooled));
    return AllocateOutput(
        ctx, 1, combiner_ == Combiner::kMax ? shape : TensorShape({0}),
        &p->winners);
  }

  // The inputs gradient [B, ...] and num_rows, and the output [N, ...].
  struct PoolingGradient {
    int64_t num_rows = 0;
    int64_t batch = 0;
    int64_t dim = 0;
    const int64_t* winners = nullptr;  // for max
    TensorShape shape;
    Tensor* output = nullptr;
  };
  // Checks everything except the offsets in row_splits and the rows in index,
  // which may be in device memory. Allocates everything except the output.
  absl::Status CheckGradient(OpKernelContext* ctx, PoolingGradient* p) const {
    const Tensor& gradient = ctx->input(0);
    const Tensor& splits = ctx->input(1);
    const Tensor& index = ctx->input(2);
    LODESTAR_TRY(CheckDeviceSequences(gradient, "gradient", splits));
    LODESTAR_TRY(CheckRank(ctx->input(3), "num_rows", 0));
    p->num_rows = ctx->input(3).scalar<int64_t>()();
    p->batch = splits.NumElements() - 1;
    if (p->num_rows < 0) {
      return InvalidArgumentError("`num_rows` must be at least 0, got ",
                                  p->num_rows, ".");
    }
    if (gradient.dim_size(0) != p->batch) {
      return InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                  " rows, but `row_splits` has ", p->batch,
                                  " sequences.");
    }
    if (combiner_ == Combiner::kMax) {
      if (index.shape() != gradient.shape()) {
        return InvalidArgumentError("`index` must have shape ",
                                    gradient.shape().DebugString(), ", got ",
                                    index.shape().DebugString(), ".");
      }
      p->winners = index.flat<int64_t>().data();
    }
    return ReplaceRows(gradient.shape(), p->num_rows, &p->shape, &p->dim);
  }

  Combiner combiner_ = Combiner::kSum;
};

template <typename T>
class SequencePoolOp : public CombinerKernel {
 public:
  using CombinerKernel::CombinerKernel;
  absl::Status Run(OpKernelContext* ctx) override {
    Pooling p;
    LODESTAR_TRY(Prepare(ctx, &p));
    const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1));
    LODESTAR_TRY(ValidateSplits("row_splits", splits, p.num_rows));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequencePool<T>(combiner_, ctx->input(0).flat<T>().data(), p.dim, splits,
                    ctx->input(2).scalar<T>()(), p.pooled->flat<T>().data(),
                    p.winners->flat<int64_t>().data(), &parallel);
    return absl::OkStatus();
  }
};

template <typename T>
class SequencePoolGradientOp : public CombinerKernel {
 public:
  using CombinerKernel::CombinerKernel;
  absl::Status Run(OpKernelContext* ctx) override {
    PoolingGradient p;
    LODESTAR_TRY(CheckGradient(ctx, &p));
    const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1));
    LODESTAR_TRY(ValidateSplits("row_splits", splits, p.num_rows));
    LODESTAR_TRY(AllocateOutput(ctx, 0, p.shape, &p.output));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    return ToTensorFlow(SequencePoolGradient<T>(
        combiner_, ctx->input(0).flat<T>().data(), p.dim, splits, p.winners,
        p.output->flat<T>().data(), &parallel));
  }
};

LODESTAR_REGISTER_NUMBERS(LODESTAR_REGISTER_TYPE, SequencePool);
LODESTAR_REGISTER_FLOATS(LODESTAR_REGISTER_TYPE, SequencePoolGradient);

#if LODESTAR_CUDA

class SequencePoolGpuOp : public CombinerKernel {
 public:
  using CombinerKernel::CombinerKernel;
  absl::Status Run(OpKernelContext* ctx) override {
    Pooling p;
    LODESTAR_TRY(Prepare(ctx, &p));
    const Number number = NumberOf(p.pooled->dtype());
    DeviceBytes scratch;
    LODESTAR_TRY(scratch.Allocate(
        ctx, SequencePoolScratchBytes(combiner_, number, p.num_rows, p.dim)));
    return ToTensorFlow(
        LaunchSequencePool(CudaStream(ctx), combiner_, number,
                           ctx->input(0).data(), p.dim,
                           SplitsOf(ctx->input(1), p.num_rows),
                           ctx->input(2).data(), scratch.data(),
                           p.pooled->data(), p.winners->flat<int64_t>().data()),
        "pooling");
  }
};

class SequencePoolGradientGpuOp : public CombinerKernel {
 public:
  using CombinerKernel::CombinerKernel;
  absl::Status Run(OpKernelContext* ctx) override {
    PoolingGradient p;
    LODESTAR_TRY(CheckGradient(ctx, &p));
    LODESTAR_TRY(AllocateOutput(ctx, 0, p.shape, &p.output));
    return ToTensorFlow(
        LaunchSequencePoolGradient(
            CudaStream(ctx), combiner_, NumberOf(p.output->dtype()),
            ctx->input(0).data(), p.dim, SplitsOf(ctx->input(1), p.num_rows),
            p.winners, p.output->data()),
        "gradient of pooling");
  }
};

LODESTAR_REGISTER_ON_GPU(
    SequencePool, SequencePoolGpuOp,
    .TypeConstraint("T", kNumbers).HostMemory("pad_value"));

LODESTAR_REGISTER_ON_GPU(SequencePoolGradient, SequencePoolGradientGpuOp,
                         .TypeConstraint("T", kFloats).HostMemory("num_rows"));

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
