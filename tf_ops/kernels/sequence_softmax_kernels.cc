// Kernels of SequenceSoftmax and SequenceSoftmaxGradient. Contracts:
// tf_ops/ops/sequence_softmax_ops.cc; algorithm:
// tf_ops/core/sequence_softmax.h.

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/sequence_softmax.h"
#include "tf_ops/kernels/parallel_util.h"
#include "tf_ops/kernels/sequence_util.h"
#include "tf_ops/kernels/status_util.h"
#include "tf_ops/kernels/tensor_util.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename T>
class SequenceSoftmaxOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    const Tensor& row_splits = ctx->input(1);
    OP_REQUIRES_OK(ctx, CheckSequences(values, "values", row_splits));
    Tensor* probabilities = nullptr;
    OP_REQUIRES_OK(ctx, ctx->forward_input_or_allocate_output(
                            {0}, 0, values.shape(), &probabilities));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceSoftmax<T>(values.flat<T>().data(), NumbersInARow(values),
                       FlatSpan<int64_t>(row_splits),
                       probabilities->flat<T>().data(), &parallel);
  }
};

template <typename T>
class SequenceSoftmaxGradientOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    const Tensor& probabilities = ctx->input(0);
    const Tensor& gradient = ctx->input(1);
    const Tensor& row_splits = ctx->input(2);
    OP_REQUIRES_OK(ctx,
                   CheckSequences(probabilities, "probabilities", row_splits));
    OP_REQUIRES(ctx, gradient.shape() == probabilities.shape(),
                InvalidArgumentError(
                    "`gradient` has shape ", gradient.shape().DebugString(),
                    ", wanted ", probabilities.shape().DebugString()));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->forward_input_or_allocate_output(
                            {1, 0}, 0, gradient.shape(), &output));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceSoftmaxGradient<T>(
        probabilities.flat<T>().data(), gradient.flat<T>().data(),
        NumbersInARow(probabilities), FlatSpan<int64_t>(row_splits),
        output->flat<T>().data(), &parallel);
  }
};

#define REGISTER(T)                                                \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceSoftmax")         \
                              .Device(DEVICE_CPU)                  \
                              .TypeConstraint<T>("T"),             \
                          SequenceSoftmaxOp<T>);                   \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceSoftmaxGradient") \
                              .Device(DEVICE_CPU)                  \
                              .TypeConstraint<T>("T"),             \
                          SequenceSoftmaxGradientOp<T>)
REGISTER(Eigen::half);
REGISTER(Eigen::bfloat16);
REGISTER(float);
REGISTER(double);
#undef REGISTER

}  // namespace
}  // namespace lodestar
