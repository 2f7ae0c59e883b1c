#include "tf_ops/core/sequence/sequence_context.h"
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

class WindowKernel : public Kernel {
 public:
  explicit WindowKernel(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("start", &start_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("size", &size_));
    OP_REQUIRES(
        ctx, start_ >= -kMaxContextStart && start_ <= kMaxContextStart,
        InvalidArgumentError("`start` must be in [", -kMaxContextStart, ", ",
                             kMaxContextStart, "], got ", start_, "."));
  }

 protected:
  // Checks everything except row_splits, which may be in device memory, and
  // allocates the windows.
  absl::Status Prepare(OpKernelContext* ctx, Tensor** windows) const {
    const Tensor& values = ctx->input(0);
    LODESTAR_TRY(CheckRank(ctx->input(2), "pad_value", 0));
    TensorShape shape({values.dim_size(0)});
    LODESTAR_TRY(shape.AddDimWithStatus(size_));
    LODESTAR_TRY(AppendDims(values, 1, &shape));
    return AllocateOutput(ctx, 0, shape, windows);
  }

  absl::Status PrepareGradient(OpKernelContext* ctx, Tensor** output) const {
    const Tensor& gradient = ctx->input(0);
    if (!(gradient.dims() >= 2 && gradient.dim_size(1) == size_)) {
      return InvalidArgumentError("`gradient` must have windows of ", size_,
                                  " rows, got shape ",
                                  gradient.shape().DebugString(), ".");
    }
    TensorShape shape({gradient.dim_size(0)});
    LODESTAR_TRY(AppendDims(gradient, 2, &shape));
    return AllocateOutput(ctx, 0, shape, output);
  }

  int64_t start_ = 0;
  int64_t size_ = 1;
};

template <typename T>
class SequenceContextOp : public WindowKernel {
 public:
  using WindowKernel::WindowKernel;
  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    LODESTAR_TRY(CheckSequences(values, "values", ctx->input(1)));
    Tensor* windows = nullptr;
    LODESTAR_TRY(Prepare(ctx, &windows));
    if (windows->NumElements() == 0) return absl::OkStatus();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceContext<T>(values.flat<T>().data(), ValuesPerRow(values),
                       FlatSpan<int64_t>(ctx->input(1)), start_, size_,
                       ctx->input(2).scalar<T>()(), windows->flat<T>().data(),
                       &parallel);
    return absl::OkStatus();
  }
};

template <typename T>
class SequenceContextGradientOp : public WindowKernel {
 public:
  using WindowKernel::WindowKernel;
  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& gradient = ctx->input(0);
    LODESTAR_TRY(CheckSequences(gradient, "gradient", ctx->input(1)));
    Tensor* output = nullptr;
    LODESTAR_TRY(PrepareGradient(ctx, &output));
    if (output->NumElements() == 0) return absl::OkStatus();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceContextGradient<T>(gradient.flat<T>().data(), ValuesPerRow(*output),
                               FlatSpan<int64_t>(ctx->input(1)), start_, size_,
                               output->flat<T>().data(), &parallel);
    return absl::OkStatus();
  }
};

LODESTAR_REGISTER_NUMBERS(LODESTAR_REGISTER_TYPE, SequenceContext);
LODESTAR_REGISTER_FLOATS(LODESTAR_REGISTER_TYPE, SequenceContextGradient);

#if LODESTAR_CUDA

class SequenceContextGpuOp : public WindowKernel {
 public:
  using WindowKernel::WindowKernel;
  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    const Tensor& row_splits = ctx->input(1);
    LODESTAR_TRY(CheckDeviceSequences(values, "values", row_splits));
    Tensor* windows = nullptr;
    LODESTAR_TRY(Prepare(ctx, &windows));
    if (windows->NumElements() == 0) return absl::OkStatus();
    return ToTensorFlow(
        LaunchSequenceContext(CudaStream(ctx), values.data(),
                              RowBytes(values, ValuesPerRow(values)),
                              SplitsOf(row_splits, values.dim_size(0)), start_,
                              size_, ctx->input(2).data(),
                              DataTypeSize(values.dtype()), windows->data()),
        "windows");
  }
};

class SequenceContextGradientGpuOp : public WindowKernel {
 public:
  using WindowKernel::WindowKernel;
  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& gradient = ctx->input(0);
    const Tensor& row_splits = ctx->input(1);
    LODESTAR_TRY(CheckDeviceSequences(gradient, "gradient", row_splits));
    Tensor* output = nullptr;
    LODESTAR_TRY(PrepareGradient(ctx, &output));
    if (output->NumElements() == 0) return absl::OkStatus();
    return ToTensorFlow(
        LaunchSequenceContextGradient(
            CudaStream(ctx), NumberOf(gradient.dtype()), gradient.data(),
            ValuesPerRow(*output), SplitsOf(row_splits, gradient.dim_size(0)),
            start_, size_, output->data()),
        "gradient of windows");
  }
};

LODESTAR_REGISTER_ON_GPU(
    SequenceContext, SequenceContextGpuOp,
    .TypeConstraint("T", kNumbers).HostMemory("pad_value"));
LODESTAR_REGISTER_ON_GPU(SequenceContextGradient, SequenceContextGradientGpuOp,
                         .TypeConstraint("T", kFloats));

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
