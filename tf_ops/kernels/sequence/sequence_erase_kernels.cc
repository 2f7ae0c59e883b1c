// Kernel of SequenceErase. Contract: tf_ops/ops/sequence/sequence_erase_ops.cc;
// algorithm: tf_ops/core/sequence/sequence_erase.h.

#include <string_view>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/sequence/sequence_erase.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

namespace lodestar {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

template <typename T, typename Key>
class SequenceEraseOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    CatchBadAlloc(ctx, [&] { Erase(ctx); });
  }

 private:
  static void Erase(OpKernelContext* ctx) {
    const Tensor& values = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckSequences(values, "values", ctx->input(1)));
    OP_REQUIRES(
        ctx, values.NumElements() == values.dim_size(0),
        InvalidArgumentError("`values` must have one token a row, found shape ",
                             values.shape().DebugString()));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(2), "tokens", 1));
    const Span<const T> ids = FlatSpan<T>(values);
    const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1));
    Tensor marks;
    OP_REQUIRES_OK(ctx, ctx->allocate_temp(tensorflow::DT_BOOL,
                                           TensorShape({ids.size()}), &marks));
    Tensor* kept_splits = nullptr;
    OP_REQUIRES_OK(ctx,
                   AllocateOutput(ctx, 1, ctx->input(1).shape(), &kept_splits));
    const Span<bool> kept = FlatSpan<bool>(&marks);
    const Span<int64_t> ends = FlatSpan<int64_t>(kept_splits);
    SequenceErase<Key>(ids, splits, FlatSpan<T>(ctx->input(2)), kept, ends);
    TensorShape shape = values.shape();
    OP_REQUIRES_OK(ctx, shape.SetDimWithStatus(0, ends[ends.size() - 1]));
    Tensor* rows = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, shape, &rows));
    T* out = rows->flat<T>().data();
    for (int64_t i = 0; i < ids.size(); ++i) {
      if (kept[i]) *out++ = ids[i];
    }
  }
};

#define REGISTER(T, Key)                                      \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceErase")      \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T"),        \
                          SequenceEraseOp<T, Key>)
REGISTER(int32_t, int32_t);
REGISTER(int64_t, int64_t);
REGISTER(tensorflow::tstring, std::string_view);
#undef REGISTER

}  // namespace
}  // namespace lodestar
