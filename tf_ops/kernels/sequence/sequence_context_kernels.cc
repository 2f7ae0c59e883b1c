// Kernels of SequenceContext and SequenceContextGradient. Contracts:
// tf_ops/ops/sequence/sequence_context_ops.cc; algorithm:
// tf_ops/core/sequence/sequence_context.h.

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tf_ops/core/sequence/sequence_context.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class WindowKernel : public tensorflow::OpKernel {
 public:
  explicit WindowKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("start", &start_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("size", &size_));
    OP_REQUIRES(
        ctx, start_ >= -kMaxContextStart && start_ <= kMaxContextStart,
        InvalidArgumentError("`start` is ", start_, ", wanted ",
                             -kMaxContextStart, " to ", kMaxContextStart));
  }

 protected:
  int64_t start_ = 0;
  int64_t size_ = 1;
};

template <typename T>
class SequenceContextOp : public WindowKernel {
 public:
  using WindowKernel::WindowKernel;
  void Compute(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckSequences(values, "values", ctx->input(1)));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(2), "pad_value", 0));
    TensorShape shape({values.dim_size(0)});
    OP_REQUIRES_OK(ctx, shape.AddDimWithStatus(size_));
    for (int k = 1; k < values.dims(); ++k) {
      OP_REQUIRES_OK(ctx, shape.AddDimWithStatus(values.dim_size(k)));
    }
    Tensor* windows = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, shape, &windows));
    if (windows->NumElements() == 0) return;
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceContext<T>(values.flat<T>().data(), NumbersInARow(values),
                       FlatSpan<int64_t>(ctx->input(1)), start_, size_,
                       ctx->input(2).scalar<T>()(), windows->flat<T>().data(),
                       &parallel);
  }
};

template <typename T>
class SequenceContextGradientOp : public WindowKernel {
 public:
  using WindowKernel::WindowKernel;
  void Compute(OpKernelContext* ctx) override {
    const Tensor& gradient = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckSequences(gradient, "gradient", ctx->input(1)));
    OP_REQUIRES(ctx, gradient.dims() >= 2 && gradient.dim_size(1) == size_,
                InvalidArgumentError("`gradient` has shape ",
                                     gradient.shape().DebugString(),
                                     ", wanted windows of ", size_, " rows"));
    TensorShape shape({gradient.dim_size(0)});
    for (int k = 2; k < gradient.dims(); ++k) {
      OP_REQUIRES_OK(ctx, shape.AddDimWithStatus(gradient.dim_size(k)));
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, shape, &output));
    if (output->NumElements() == 0) return;
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceContextGradient<T>(gradient.flat<T>().data(),
                               NumbersInARow(*output),
                               FlatSpan<int64_t>(ctx->input(1)), start_, size_,
                               output->flat<T>().data(), &parallel);
  }
};

#define REGISTER(T)                                        \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceContext") \
                              .Device(DEVICE_CPU)          \
                              .TypeConstraint<T>("T"),     \
                          SequenceContextOp<T>);
LODESTAR_CALL_NUMBERS(REGISTER)
#undef REGISTER

#define REGISTER(T)                                                \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceContextGradient") \
                              .Device(DEVICE_CPU)                  \
                              .TypeConstraint<T>("T"),             \
                          SequenceContextGradientOp<T>);
TF_CALL_FLOAT_TYPES(REGISTER)
#undef REGISTER

}  // namespace
}  // namespace lodestar
