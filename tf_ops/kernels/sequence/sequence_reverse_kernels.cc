#include "tf_ops/core/sequence/sequence_reverse.h"
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

absl::Status RunSequenceReverse(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  const Tensor& row_splits = ctx->input(1);
  LODESTAR_TRY(CheckSequences(values, "values", row_splits));
  Tensor* reversed = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 0, values.shape(), &reversed));
  const Span<const int64_t> splits = FlatSpan<int64_t>(row_splits);
  const int64_t dim = ValuesPerRow(values);
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  VisitCopied(values.dtype(), [&](auto zero) {
    using T = decltype(zero);
    SequenceReverse<T>(CopySource<T>(values), CopyWidth<T>(values, dim), splits,
                       CopyTarget<T>(reversed), &parallel);
  });
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(SequenceReverse);

#if LODESTAR_CUDA

absl::Status RunSequenceReverseOnGpu(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  const Tensor& row_splits = ctx->input(1);
  LODESTAR_TRY(CheckDeviceSequences(values, "values", row_splits));
  Tensor* reversed = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 0, values.shape(), &reversed));
  return ToTensorFlow(
      LaunchSequenceReverse(CudaStream(ctx), values.data(),
                            RowBytes(values, ValuesPerRow(values)),
                            SplitsOf(row_splits, values.dim_size(0)),
                            reversed->data()),
      "reversal");
}

LODESTAR_REGISTER_ON_GPU(SequenceReverse,
                         FunctionKernel<RunSequenceReverseOnGpu>,
                         .TypeConstraint("T", kMoved));

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
