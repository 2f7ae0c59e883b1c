// Kernel of SequenceTopk. Contract: tf_ops/ops/sequence/sequence_topk_ops.cc;
// algorithm: tf_ops/core/sequence/sequence_topk.h.

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tf_ops/core/sequence/sequence_topk.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

namespace lodestar {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

template <typename T>
class SequenceTopkOp : public tensorflow::OpKernel {
 public:
  explicit SequenceTopkOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("channels", &channels_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("k", &k_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckRank(values, "values", 1));
    // Only x has rows that can be counted.
    OP_REQUIRES_OK(
        ctx, CheckSplits(ctx->input(1), "x_splits", values.NumElements()));
    OP_REQUIRES_OK(ctx, CheckSplits(ctx->input(2), "row_splits"));
    OP_REQUIRES_OK(ctx, CheckSplits(ctx->input(3), "col_splits"));
    const Span<const int64_t> x = FlatSpan<int64_t>(ctx->input(1));
    const Span<const int64_t> row = FlatSpan<int64_t>(ctx->input(2));
    const Span<const int64_t> col = FlatSpan<int64_t>(ctx->input(3));
    OP_REQUIRES_OK(ctx, ToTensorFlow(CheckMatrixSizes(x, row, col, channels_)));
    TensorShape shape({row[row.size() - 1]});
    OP_REQUIRES_OK(ctx, shape.AddDimWithStatus(channels_));
    OP_REQUIRES_OK(ctx, shape.AddDimWithStatus(k_));
    Tensor* index = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, shape, &index));
    if (index->NumElements() == 0) return;
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceTopk<T>(values.flat<T>().data(), x, row, col, channels_, k_,
                    index->flat<int64_t>().data(), &parallel);
  }

 private:
  int64_t channels_ = 1;
  int64_t k_ = 1;
};

#define REGISTER(T)                                           \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceTopk")       \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T"),        \
                          SequenceTopkOp<T>);
TF_CALL_FLOAT_TYPES(REGISTER)
#undef REGISTER

}  // namespace
}  // namespace lodestar
