#include "tf_ops/core/sequence/sequence_softmax.h"
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

template <typename T>
absl::Status RunSequenceSoftmax(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  const Tensor& row_splits = ctx->input(1);
  LODESTAR_TRY(CheckSequences(values, "values", row_splits));
  Tensor* probabilities = nullptr;
  LODESTAR_TRY(ctx->forward_input_or_allocate_output({0}, 0, values.shape(),
                                                     &probabilities));
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  SequenceSoftmax<T>(values.flat<T>().data(), ValuesPerRow(values),
                     FlatSpan<int64_t>(row_splits),
                     probabilities->flat<T>().data(), &parallel);
  return absl::OkStatus();
}

absl::Status CheckSameShape(const Tensor& gradient,
                            const Tensor& probabilities) {
  if (gradient.shape() == probabilities.shape()) return absl::OkStatus();
  return InvalidArgumentError("`gradient` must have shape ",
                              probabilities.shape().DebugString(), ", got ",
                              gradient.shape().DebugString(), ".");
}

template <typename T>
absl::Status RunSequenceSoftmaxGradient(OpKernelContext* ctx) {
  const Tensor& probabilities = ctx->input(0);
  const Tensor& gradient = ctx->input(1);
  const Tensor& row_splits = ctx->input(2);
  LODESTAR_TRY(CheckSequences(probabilities, "probabilities", row_splits));
  LODESTAR_TRY(CheckSameShape(gradient, probabilities));
  Tensor* output = nullptr;
  LODESTAR_TRY(ctx->forward_input_or_allocate_output(
      {1, 0}, 0, gradient.shape(), &output));
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  SequenceSoftmaxGradient<T>(
      probabilities.flat<T>().data(), gradient.flat<T>().data(),
      ValuesPerRow(probabilities), FlatSpan<int64_t>(row_splits),
      output->flat<T>().data(), &parallel);
  return absl::OkStatus();
}

LODESTAR_REGISTER_FLOATS(LODESTAR_REGISTER_FUNCTION_TYPE, SequenceSoftmax);
LODESTAR_REGISTER_FLOATS(LODESTAR_REGISTER_FUNCTION_TYPE,
                         SequenceSoftmaxGradient);

#if LODESTAR_CUDA

absl::Status RunSequenceSoftmaxOnGpu(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  const Tensor& row_splits = ctx->input(1);
  LODESTAR_TRY(CheckDeviceSequences(values, "values", row_splits));
  Tensor* probabilities = nullptr;
  LODESTAR_TRY(ctx->forward_input_or_allocate_output({0}, 0, values.shape(),
                                                     &probabilities));
  const Number number = NumberOf(values.dtype());
  const int64_t dim = ValuesPerRow(values);
  const DeviceSplits splits = SplitsOf(row_splits, values.dim_size(0));
  DeviceBytes scratch;
  LODESTAR_TRY(
      scratch.Allocate(ctx, SequenceSoftmaxScratchBytes(number, dim, splits)));
  return ToTensorFlow(
      LaunchSequenceSoftmax(CudaStream(ctx), number, values.data(), dim, splits,
                            scratch.data(), probabilities->data()),
      "softmax");
}

absl::Status RunSequenceSoftmaxGradientOnGpu(OpKernelContext* ctx) {
  const Tensor& probabilities = ctx->input(0);
  const Tensor& gradient = ctx->input(1);
  const Tensor& row_splits = ctx->input(2);
  LODESTAR_TRY(
      CheckDeviceSequences(probabilities, "probabilities", row_splits));
  LODESTAR_TRY(CheckSameShape(gradient, probabilities));
  Tensor* output = nullptr;
  LODESTAR_TRY(ctx->forward_input_or_allocate_output(
      {1, 0}, 0, gradient.shape(), &output));
  const Number number = NumberOf(gradient.dtype());
  const int64_t dim = ValuesPerRow(probabilities);
  const DeviceSplits splits = SplitsOf(row_splits, gradient.dim_size(0));
  DeviceBytes scratch;
  LODESTAR_TRY(
      scratch.Allocate(ctx, SequenceSoftmaxScratchBytes(number, dim, splits)));
  return ToTensorFlow(
      LaunchSequenceSoftmaxGradient(CudaStream(ctx), number,
                                    probabilities.data(), gradient.data(), dim,
                                    splits, scratch.data(), output->data()),
      "gradient of softmax");
}

LODESTAR_REGISTER_ON_GPU(SequenceSoftmax,
                         FunctionKernel<RunSequenceSoftmaxOnGpu>,
                         .TypeConstraint("T", kFloats));
LODESTAR_REGISTER_ON_GPU(SequenceSoftmaxGradient,
                         FunctionKernel<RunSequenceSoftmaxGradientOnGpu>,
                         .TypeConstraint("T", kFloats));

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
