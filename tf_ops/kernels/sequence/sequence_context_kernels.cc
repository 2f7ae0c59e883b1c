#include "tf_ops/core/sequence/sequence_context.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

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
    LODESTAR_TRY(CheckRank(ctx->input(2), "pad_value", 0));
    TensorShape shape({values.dim_size(0)});
    LODESTAR_TRY(shape.AddDimWithStatus(size_));
    LODESTAR_TRY(AppendDims(values, 1, &shape));
    Tensor* windows = nullptr;
    LODESTAR_TRY(AllocateOutput(ctx, 0, shape, &windows));
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
    if (!(gradient.dims() >= 2 && gradient.dim_size(1) == size_)) {
      return InvalidArgumentError("`gradient` must have windows of ", size_,
                                  " rows, got shape ",
                                  gradient.shape().DebugString(), ".");
    }
    TensorShape shape({gradient.dim_size(0)});
    LODESTAR_TRY(AppendDims(gradient, 2, &shape));
    Tensor* output = nullptr;
    LODESTAR_TRY(AllocateOutput(ctx, 0, shape, &output));
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

}  // namespace
}  // namespace lodestar
