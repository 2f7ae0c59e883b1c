#include <algorithm>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tf_ops/core/sequence/sequence_erase.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"
#if LODESTAR_CUDA
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda_op_util.h"
#endif

namespace lodestar {
namespace {

// Checks the inputs. row_splits and tokens are in host memory.
absl::Status CheckErase(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  LODESTAR_TRY(CheckSequences(values, "values", ctx->input(1)));
  if (values.NumElements() != values.dim_size(0)) {
    return InvalidArgumentError(
        "`values` must have one token per row, got shape ",
        values.shape().DebugString(), ".");
  }
  return CheckRank(ctx->input(2), "tokens", 1);
}

// Allocates the output of as many rows as the splits of the kept ones.
absl::Status AllocateKept(OpKernelContext* ctx, Span<const int64_t> kept_splits,
                          Tensor** rows) {
  TensorShape shape = ctx->input(0).shape();
  LODESTAR_TRY(shape.SetDimWithStatus(0, kept_splits[kept_splits.size() - 1]));
  return AllocateOutput(ctx, 0, shape, rows);
}

template <typename T>
absl::Status RunSequenceErase(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckErase(ctx));
  const Tensor& values = ctx->input(0);
  const Span<const T> ids = FlatSpan<T>(values);
  const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1));
  Tensor marks;
  LODESTAR_TRY(ctx->allocate_temp(tensorflow::DT_BOOL,
                                  TensorShape({ids.size()}), &marks));
  Tensor* kept_splits = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 1, ctx->input(1).shape(), &kept_splits));
  const Span<bool> kept = FlatSpan<bool>(&marks);
  const Span<int64_t> ends = FlatSpan<int64_t>(kept_splits);
  using Key =
      std::conditional_t<std::is_same_v<T, tstring>, std::string_view, T>;
  SequenceErase<Key>(ids, splits, FlatSpan<T>(ctx->input(2)), kept, ends);
  Tensor* rows = nullptr;
  LODESTAR_TRY(AllocateKept(ctx, ends, &rows));
  T* out = rows->flat<T>().data();
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (kept[i]) *out++ = ids[i];
  }
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION_TYPE(SequenceErase, int32_t);
LODESTAR_REGISTER_FUNCTION_TYPE(SequenceErase, int64_t);
LODESTAR_REGISTER_FUNCTION_TYPE(SequenceErase, tstring);

#if LODESTAR_CUDA

template <typename T>
absl::Status RunSequenceEraseOnGpu(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckErase(ctx));
  const Tensor& values = ctx->input(0);
  const Tensor& row_splits = ctx->input(1);
  const Span<const T> tokens = FlatSpan<T>(ctx->input(2));
  const Number number = NumberOf(values.dtype());
  const int64_t num_rows = values.dim_size(0);
  std::vector<T> ascending(tokens.begin(), tokens.end());
  std::sort(ascending.begin(), ascending.end());
  DeviceBytes device_tokens;
  LODESTAR_TRY(device_tokens.CopyFrom(ctx, Span<const T>(ascending)));
  DeviceBytes splits;
  LODESTAR_TRY(splits.CopyFrom(ctx, FlatSpan<int64_t>(row_splits)));
  DeviceBytes scratch;
  LODESTAR_TRY(scratch.Allocate(ctx, SequenceEraseScratchBytes(num_rows)));
  DeviceBytes kept_splits;
  const auto splits_bytes = static_cast<int64_t>(row_splits.TotalBytes());
  LODESTAR_TRY(kept_splits.Allocate(ctx, splits_bytes));
  LODESTAR_TRY(ToTensorFlow(
      LaunchSequenceEraseSplits(CudaStream(ctx), number, values.data(),
                                splits.splits(num_rows), device_tokens.data(),
                                tokens.size(), scratch.data(),
                                static_cast<int64_t*>(kept_splits.data())),
      "erasure"));
  Tensor* kept = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 1, row_splits.shape(), &kept));
  LODESTAR_TRY(CopyToHost(ctx, kept_splits.data(), splits_bytes, kept->data()));
  Tensor* rows = nullptr;
  LODESTAR_TRY(AllocateKept(ctx, FlatSpan<int64_t>(kept), &rows));
  return ToTensorFlow(
      LaunchSequenceErase(CudaStream(ctx), number, values.data(), num_rows,
                          scratch.data(), rows->data()),
      "erasure");
}

#define LODESTAR_REGISTER_ERASE_ON_GPU(T)                            \
  LODESTAR_REGISTER_ON_GPU(SequenceErase,                            \
                           FunctionKernel<RunSequenceEraseOnGpu<T>>, \
                           .TypeConstraint<T>("T")                   \
                               .HostMemory("row_splits")             \
                               .HostMemory("tokens")                 \
                               .HostMemory("kept_splits"))
LODESTAR_REGISTER_ERASE_ON_GPU(int32_t);
LODESTAR_REGISTER_ERASE_ON_GPU(int64_t);
#undef LODESTAR_REGISTER_ERASE_ON_GPU

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
