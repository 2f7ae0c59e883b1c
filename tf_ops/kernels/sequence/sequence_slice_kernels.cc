// Kernels of SequenceSlice and SequenceSliceGradient. Contracts:
// tf_ops/ops/sequence/sequence_slice_ops.cc; algorithm:
// tf_ops/core/sequence/sequence_slice.h.

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tf_ops/core/sequence/sequence_slice.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Inputs 2 and 3.
absl::Status CheckParts(OpKernelContext* ctx) {
  TF_RETURN_IF_ERROR(CheckRank(ctx->input(2), "offset", 1));
  return CheckRank(ctx->input(3), "length", 1);
}

// Rows are copied whatever they are.
class SequenceSliceOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckSequences(values, "values", ctx->input(1)));
    OP_REQUIRES_OK(ctx, CheckParts(ctx));
    const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1));
    const Span<const int64_t> offset = FlatSpan<int64_t>(ctx->input(2));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, ctx->input(1).shape(), &output));
    const Span<int64_t> sliced = FlatSpan<int64_t>(output);
    OP_REQUIRES_OK(
        ctx, ToTensorFlow(SequenceSliceSplits(
                 splits, offset, FlatSpan<int64_t>(ctx->input(3)), sliced)));
    TensorShape shape;
    int64_t dim = 0;
    OP_REQUIRES_OK(ctx, ReplaceRows(values.shape(), sliced[sliced.size() - 1],
                                    &shape, &dim));
    Tensor* rows = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, shape, &rows));
    if (rows->NumElements() == 0) return;
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    VisitCopied(values.dtype(), [&](auto zero) {
      using T = decltype(zero);
      SequenceSlice<T>(CopySource<T>(values), CopyWidth<T>(values, dim), splits,
                       offset, sliced, CopyTarget<T>(rows), &parallel);
    });
  }
};

template <typename T>
class SequenceSliceGradientOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    const Tensor& gradient = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckNoScalar(gradient, "gradient"));
    OP_REQUIRES_OK(ctx, CheckSplits(ctx->input(1), "row_splits"));
    OP_REQUIRES_OK(ctx, CheckParts(ctx));
    const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1));
    const Span<const int64_t> offset = FlatSpan<int64_t>(ctx->input(2));
    Tensor buffer;
    OP_REQUIRES_OK(ctx, ctx->allocate_temp(tensorflow::DT_INT64,
                                           ctx->input(1).shape(), &buffer));
    const Span<int64_t> sliced = FlatSpan<int64_t>(&buffer);
    OP_REQUIRES_OK(
        ctx, ToTensorFlow(SequenceSliceSplits(
                 splits, offset, FlatSpan<int64_t>(ctx->input(3)), sliced)));
    const int64_t wanted = sliced[sliced.size() - 1];
    OP_REQUIRES(ctx, gradient.dim_size(0) == wanted,
                InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                     " rows, but the parts have ", wanted));
    TensorShape shape;
    int64_t dim = 0;
    OP_REQUIRES_OK(ctx, ReplaceRows(gradient.shape(), splits[splits.size() - 1],
                                    &shape, &dim));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, shape, &output));
    if (output->NumElements() == 0) return;
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceSliceGradient<T>(gradient.flat<T>().data(), dim, splits, offset,
                             sliced, output->flat<T>().data(), &parallel);
  }
};

REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceSlice").Device(DEVICE_CPU),
                        SequenceSliceOp);

#define REGISTER(T)                                              \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceSliceGradient") \
                              .Device(DEVICE_CPU)                \
                              .TypeConstraint<T>("T"),           \
                          SequenceSliceGradientOp<T>);
TF_CALL_FLOAT_TYPES(REGISTER)
#undef REGISTER

}  // namespace
}  // namespace lodestar
