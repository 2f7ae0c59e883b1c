// Kernels of SequencePool and SequencePoolGradient. Contracts:
// tf_ops/ops/sequence_pool_ops.cc; algorithm: tf_ops/core/sequence_pool.h; the
// GPU's in sequence_pool_kernels.cu.cc.

#include <string>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lod.h"
#include "tf_ops/core/sequence_pool.h"
#include "tf_ops/kernels/parallel_util.h"
#include "tf_ops/kernels/status_util.h"
#include "tf_ops/kernels/tensor_util.h"
#if LODESTAR_CUDA
#include "tensorflow/core/framework/device_base.h"
#include "tf_ops/kernels/sequence_pool_cuda.h"
#include "xla/stream_executor/stream.h"
#endif

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class CombinerKernel : public tensorflow::OpKernel {
 public:
  explicit CombinerKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {
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
    Tensor* index = nullptr;
  };
  absl::Status Prepare(OpKernelContext* ctx, Pooling* p) const {
    const Tensor& values = ctx->input(0);
    const Tensor& splits = ctx->input(1);
    if (values.dims() < 1) {
      return InvalidArgumentError(
          "`values` must have rank 1 or more, found a scalar");
    }
    TF_RETURN_IF_ERROR(CheckRank(splits, "row_splits", 1));
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(2), "pad_value", 0));
    if (splits.NumElements() == 0) {
      return InvalidArgumentError(
          "`row_splits` is empty, wanted at least one offset");
    }
    p->num_rows = values.dim_size(0);
    p->batch = splits.NumElements() - 1;
    TensorShape shape;
    TF_RETURN_IF_ERROR(ReplaceRows(values.shape(), p->batch, &shape, &p->dim));
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, shape, &p->pooled));
    return ctx->allocate_output(
        1, combiner_ == Combiner::kMax ? shape : TensorShape({0}), &p->index);
  }

  Combiner combiner_ = Combiner::kSum;
};

template <typename T>
class SequencePoolOp : public CombinerKernel {
 public:
  using CombinerKernel::CombinerKernel;
  void Compute(OpKernelContext* ctx) override {
    Pooling p;
    OP_REQUIRES_OK(ctx, Prepare(ctx, &p));
    const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1));
    OP_REQUIRES_OK(
        ctx, ToTensorFlow(ValidateSplits("row_splits", splits, p.num_rows)));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequencePool<T>(combiner_, ctx->input(0).flat<T>().data(), p.dim, splits,
                    ctx->input(2).scalar<T>()(), p.pooled->flat<T>().data(),
                    p.index->flat<int64_t>().data(), &parallel);
  }
};

template <typename T>
class SequencePoolGradientOp : public CombinerKernel {
 public:
  using CombinerKernel::CombinerKernel;
  void Compute(OpKernelContext* ctx) override {
    const Tensor& gradient = ctx->input(0);
    const Tensor& index = ctx->input(2);
    OP_REQUIRES(ctx, gradient.dims() >= 1,
                InvalidArgumentError(
                    "`gradient` must have rank 1 or more, found a scalar"));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "row_splits", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(3), "num_rows", 0));
    const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1));
    const int64_t num_rows = ctx->input(3).scalar<int64_t>()();
    OP_REQUIRES_OK(
        ctx, ToTensorFlow(ValidateSplits("row_splits", splits, num_rows)));
    const int64_t batch = splits.size() - 1;
    OP_REQUIRES(ctx, gradient.dim_size(0) == batch,
                InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                     " rows, but `row_splits` makes ", batch,
                                     " sequences"));
    OP_REQUIRES(
        ctx, combiner_ != Combiner::kMax || index.shape() == gradient.shape(),
        InvalidArgumentError("`index` has shape ", index.shape().DebugString(),
                             ", wanted ", gradient.shape().DebugString()));
    TensorShape shape;
    int64_t dim = 0;
    OP_REQUIRES_OK(ctx, ReplaceRows(gradient.shape(), num_rows, &shape, &dim));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &output));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    OP_REQUIRES_OK(
        ctx, ToTensorFlow(SequencePoolGradient<T>(
                 combiner_, gradient.flat<T>().data(), dim, splits,
                 combiner_ == Combiner::kMax ? index.flat<int64_t>().data()
                                             : nullptr,
                 output->flat<T>().data(), &parallel)));
  }
};

#define REGISTER(T)                                                            \
  REGISTER_KERNEL_BUILDER(                                                     \
      Name("Lodestar>SequencePool").Device(DEVICE_CPU).TypeConstraint<T>("T"), \
      SequencePoolOp<T>)
REGISTER(Eigen::half);
REGISTER(Eigen::bfloat16);
REGISTER(float);
REGISTER(double);
REGISTER(int32_t);
REGISTER(int64_t);
#undef REGISTER

#define REGISTER(T)                                             \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>SequencePoolGradient") \
                              .Device(DEVICE_CPU)               \
                              .TypeConstraint<T>("T"),          \
                          SequencePoolGradientOp<T>)
REGISTER(Eigen::half);
REGISTER(Eigen::bfloat16);
REGISTER(float);
REGISTER(double);
#undef REGISTER

#if LODESTAR_CUDA

class SequencePoolGpuOp : public CombinerKernel {
 public:
  using CombinerKernel::CombinerKernel;
  void Compute(OpKernelContext* ctx) override {
    Pooling p;
    OP_REQUIRES_OK(ctx, Prepare(ctx, &p));
    auto* stream = static_cast<cudaStream_t>(
        ctx->op_device_context()->stream()->platform_specific_handle().stream);
    const cudaError_t error = LaunchSequencePool(
        stream, combiner_, ctx->input(0).flat<float>().data(), p.num_rows,
        p.dim, ctx->input(1).flat<int64_t>().data(), p.batch,
        ctx->input(2).scalar<float>()(), p.pooled->flat<float>().data(),
        p.index->flat<int64_t>().data());
    OP_REQUIRES(ctx, error == cudaSuccess,
                absl::InternalError(StrCat("the pooling kernel did not start: ",
                                           cudaGetErrorString(error))));
  }
};

REGISTER_KERNEL_BUILDER(Name("Lodestar>SequencePool")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("pad_value")
                            .TypeConstraint<float>("T"),
                        SequencePoolGpuOp);

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
