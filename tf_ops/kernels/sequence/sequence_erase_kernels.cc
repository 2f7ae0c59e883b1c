#include <string_view>
#include <type_traits>

#include "tf_ops/core/sequence/sequence_erase.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

namespace lodestar {
namespace {

template <typename T>
absl::Status RunSequenceErase(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  LODESTAR_TRY(CheckSequences(values, "values", ctx->input(1)));
  if (values.NumElements() != values.dim_size(0)) {
    return InvalidArgumentError(
        "`values` must have one token per row, got shape ",
        values.shape().DebugString(), ".");
  }
  LODESTAR_TRY(CheckRank(ctx->input(2), "tokens", 1));
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
  TensorShape shape = values.shape();
  LODESTAR_TRY(shape.SetDimWithStatus(0, ends[ends.size() - 1]));
  Tensor* rows = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 0, shape, &rows));
  T* out = rows->flat<T>().data();
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (kept[i]) *out++ = ids[i];
  }
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION_TYPE(SequenceErase, int32_t);
LODESTAR_REGISTER_FUNCTION_TYPE(SequenceErase, int64_t);
LODESTAR_REGISTER_FUNCTION_TYPE(SequenceErase, tstring);

}  // namespace
}  // namespace lodestar
