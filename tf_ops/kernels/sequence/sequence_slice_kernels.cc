#include "tf_ops/core/sequence/sequence_slice.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

namespace lodestar {
namespace {

// Checks inputs 2 and 3.
absl::Status CheckParts(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(2), "offset", 1));
  return CheckRank(ctx->input(3), "length", 1);
}

// Copies rows of any dtype.
absl::Status RunSequenceSlice(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  LODESTAR_TRY(CheckSequences(values, "values", ctx->input(1)));
  LODESTAR_TRY(CheckParts(ctx));
  const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1));
  const Span<const int64_t> offset = FlatSpan<int64_t>(ctx->input(2));
  Tensor* output = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 1, ctx->input(1).shape(), &output));
  const Span<int64_t> sliced = FlatSpan<int64_t>(output);
  LODESTAR_TRY(SequenceSliceSplits(splits, offset,
                                   FlatSpan<int64_t>(ctx->input(3)), sliced));
  int64_t dim = 0;
  Tensor* rows = nullptr;
  LODESTAR_TRY(
      AllocateRows(ctx, 0, values, sliced[sliced.size() - 1], &dim, &rows));
  if (rows->NumElements() == 0) return absl::OkStatus();
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  VisitCopied(values.dtype(), [&](auto zero) {
    using T = decltype(zero);
    SequenceSlice<T>(CopySource<T>(values), CopyWidth<T>(values, dim), splits,
                     offset, sliced, CopyTarget<T>(rows), &parallel);
  });
  return absl::OkStatus();
}

template <typename T>
absl::Status RunSequenceSliceGradient(OpKernelContext* ctx) {
  const Tensor& gradient = ctx->input(0);
  LODESTAR_TRY(CheckNotScalar(gradient, "gradient"));
  LODESTAR_TRY(CheckSplits(ctx->input(1), "row_splits"));
  LODESTAR_TRY(CheckParts(ctx));
  const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1));
  const Span<const int64_t> offset = FlatSpan<int64_t>(ctx->input(2));
  Tensor buffer;
  LODESTAR_TRY(
      ctx->allocate_temp(tensorflow::DT_INT64, ctx->input(1).shape(), &buffer));
  const Span<int64_t> sliced = FlatSpan<int64_t>(&buffer);
  LODESTAR_TRY(SequenceSliceSplits(splits, offset,
                                   FlatSpan<int64_t>(ctx->input(3)), sliced));
  const int64_t wanted = sliced[sliced.size() - 1];
  if (gradient.dim_size(0) != wanted) {
    return InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                " rows, but the slices have ", wanted, ".");
  }
  int64_t dim = 0;
  Tensor* output = nullptr;
  LODESTAR_TRY(
      AllocateRows(ctx, 0, gradient, splits[splits.size() - 1], &dim, &output));
  if (output->NumElements() == 0) return absl::OkStatus();
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  SequenceSliceGradient<T>(gradient.flat<T>().data(), dim, splits, offset,
                           sliced, output->flat<T>().data(), &parallel);
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(SequenceSlice);
LODESTAR_REGISTER_FLOATS(LODESTAR_REGISTER_FUNCTION_TYPE,
                         SequenceSliceGradient);

}  // namespace
}  // namespace lodestar
