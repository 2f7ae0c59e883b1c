// Kernel of SequenceReshape. Contract:
// tf_ops/ops/sequence/sequence_reshape_ops.cc; algorithm:
// tf_ops/core/sequence/sequence_reshape.h.

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/sequence/sequence_reshape.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

namespace lodestar {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class SequenceReshapeOp : public tensorflow::OpKernel {
 public:
  explicit SequenceReshapeOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("new_dim", &new_dim_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckSequences(values, "values", ctx->input(1)));
    Tensor* reshaped = nullptr;
    OP_REQUIRES_OK(ctx,
                   AllocateOutput(ctx, 1, ctx->input(1).shape(), &reshaped));
    OP_REQUIRES_OK(ctx,
                   ToTensorFlow(SequenceReshapeSplits(
                       FlatSpan<int64_t>(ctx->input(1)), NumbersInARow(values),
                       new_dim_, FlatSpan<int64_t>(reshaped))));
    TensorShape shape({values.NumElements() / new_dim_});
    OP_REQUIRES_OK(ctx, shape.AddDimWithStatus(new_dim_));
    Tensor rows;
    OP_REQUIRES(ctx, rows.CopyFrom(values, shape),
                absl::InternalError("the rows do not fit the new shape"));
    ctx->set_output(0, rows);
  }

 private:
  int64_t new_dim_ = 1;
};

REGISTER_KERNEL_BUILDER(
    Name("Lodestar>SequenceReshape").Device(tensorflow::DEVICE_CPU),
    SequenceReshapeOp);

}  // namespace
}  // namespace lodestar
