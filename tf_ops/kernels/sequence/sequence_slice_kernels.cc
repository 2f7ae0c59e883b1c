#include <cstdint>
#include <vector>

#include "tf_ops/core/sequence/sequence_slice.h"
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

// The checked inputs of a slice or its gradient, in host memory, and the output
// with `dim` values per row.
struct Slicing {
  Span<const int64_t> splits;
  Span<const int64_t> offset;
  Span<int64_t> sliced;
  std::vector<int64_t> buffer;
  int64_t dim = 0;
  Tensor* output = nullptr;
};

// Checks inputs 2 and 3.
absl::Status CheckParts(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(2), "offset", 1));
  return CheckRank(ctx->input(3), "length", 1);
}

// Computes s->sliced, which is allocated, from splits that are valid.
absl::Status ReadParts(OpKernelContext* ctx, Slicing* s) {
  s->splits = FlatSpan<int64_t>(ctx->input(1));
  s->offset = FlatSpan<int64_t>(ctx->input(2));
  return ToTensorFlow(SequenceSliceSplits(
      s->splits, s->offset, FlatSpan<int64_t>(ctx->input(3)), s->sliced));
}

absl::Status PrepareSlice(OpKernelContext* ctx, Slicing* s) {
  const Tensor& values = ctx->input(0);
  LODESTAR_TRY(CheckSequences(values, "values", ctx->input(1)));
  LODESTAR_TRY(CheckParts(ctx));
  Tensor* sliced = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 1, ctx->input(1).shape(), &sliced));
  s->sliced = FlatSpan<int64_t>(sliced);
  LODESTAR_TRY(ReadParts(ctx, s));
  return AllocateRows(ctx, 0, values, s->sliced[s->sliced.size() - 1], &s->dim,
                      &s->output);
}

absl::Status PrepareSliceGradient(OpKernelContext* ctx, Slicing* s) {
  const Tensor& gradient = ctx->input(0);
  LODESTAR_TRY(CheckNotScalar(gradient, "gradient"));
  LODESTAR_TRY(CheckSplits(ctx->input(1), "row_splits"));
  LODESTAR_TRY(CheckParts(ctx));
  s->buffer.resize(ctx->input(1).NumElements());
  s->sliced = s->buffer;
  LODESTAR_TRY(ReadParts(ctx, s));
  if (gradient.dim_size(0) != s->buffer.back()) {
    return InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                " rows, but the slices have ", s->buffer.back(),
                                ".");
  }
  return AllocateRows(ctx, 0, gradient, s->splits[s->splits.size() - 1],
                      &s->dim, &s->output);
}

// Copies rows of any dtype.
absl::Status RunSequenceSlice(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  Slicing s;
  LODESTAR_TRY(PrepareSlice(ctx, &s));
  if (s.output->NumElements() == 0) return absl::OkStatus();
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  VisitCopied(values.dtype(), [&](auto zero) {
    using T = decltype(zero);
    SequenceSlice<T>(CopySource<T>(values), CopyWidth<T>(values, s.dim),
                     s.splits, s.offset, s.sliced, CopyTarget<T>(s.output),
                     &parallel);
  });
  return absl::OkStatus();
}

template <typename T>
absl::Status RunSequenceSliceGradient(OpKernelContext* ctx) {
  Slicing s;
  LODESTAR_TRY(PrepareSliceGradient(ctx, &s));
  if (s.output->NumElements() == 0) return absl::OkStatus();
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  SequenceSliceGradient<T>(ctx->input(0).flat<T>().data(), s.dim, s.splits,
                           s.offset, s.sliced, s.output->flat<T>().data(),
                           &parallel);
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(SequenceSlice);
LODESTAR_REGISTER_FLOATS(LODESTAR_REGISTER_FUNCTION_TYPE,
                         SequenceSliceGradient);

#if LODESTAR_CUDA

// The rows of each slice and where they are in the values.
absl::Status CopyRuns(OpKernelContext* ctx, const Slicing& s,
                      RunsOnDevice* runs) {
  std::vector<int64_t> places(s.offset.size());
  for (int64_t b = 0; b < s.offset.size(); ++b) {
    places[b] = s.splits[b] + s.offset[b];
  }
  return runs->Init(ctx, s.sliced, places);
}

absl::Status RunSequenceSliceOnGpu(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  Slicing s;
  LODESTAR_TRY(PrepareSlice(ctx, &s));
  if (s.output->NumElements() == 0) return absl::OkStatus();
  RunsOnDevice runs;
  LODESTAR_TRY(CopyRuns(ctx, s, &runs));
  return ToTensorFlow(
      LaunchGatherRuns(CudaStream(ctx), values.data(), RowBytes(values, s.dim),
                       runs.get(), s.output->data()),
      "slice");
}

absl::Status RunSequenceSliceGradientOnGpu(OpKernelContext* ctx) {
  const Tensor& gradient = ctx->input(0);
  Slicing s;
  LODESTAR_TRY(PrepareSliceGradient(ctx, &s));
  if (s.output->NumElements() == 0) return absl::OkStatus();
  RunsOnDevice runs;
  LODESTAR_TRY(CopyRuns(ctx, s, &runs));
  const cudaStream_t stream = CudaStream(ctx);
  LODESTAR_TRY(ToTensorFlow(
      cudaMemsetAsync(s.output->data(), 0, s.output->TotalBytes(), stream),
      "gradient of a slice"));
  return ToTensorFlow(
      LaunchScatterRuns(stream, gradient.data(), RowBytes(gradient, s.dim),
                        runs.get(), s.output->data()),
      "gradient of a slice");
}

LODESTAR_REGISTER_ON_GPU(SequenceSlice, FunctionKernel<RunSequenceSliceOnGpu>,
                         .TypeConstraint("T", kMoved)
                             .HostMemory("row_splits")
                             .HostMemory("offset")
                             .HostMemory("length")
                             .HostMemory("sliced_splits"));
LODESTAR_REGISTER_ON_GPU(SequenceSliceGradient,
                         FunctionKernel<RunSequenceSliceGradientOnGpu>,
                         .TypeConstraint("T", kFloats)
                             .HostMemory("row_splits")
                             .HostMemory("offset")
                             .HostMemory("length"));

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
