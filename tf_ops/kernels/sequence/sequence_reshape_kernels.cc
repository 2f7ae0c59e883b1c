#include "tf_ops/core/sequence/sequence_reshape.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

namespace lodestar {
namespace {

class SequenceReshapeOp : public Kernel {
 public:
  explicit SequenceReshapeOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("new_dim", &new_dim_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    LODESTAR_TRY(CheckSequences(values, "values", ctx->input(1)));
    Tensor* reshaped = nullptr;
    LODESTAR_TRY(AllocateOutput(ctx, 1, ctx->input(1).shape(), &reshaped));
    LODESTAR_TRY(SequenceReshapeSplits(FlatSpan<int64_t>(ctx->input(1)),
                                       ValuesPerRow(values), new_dim_,
                                       FlatSpan<int64_t>(reshaped)));
    TensorShape shape({values.NumElements() / new_dim_});
    LODESTAR_TRY(shape.AddDimWithStatus(new_dim_));
    Tensor rows;
    if (!(rows.CopyFrom(values, shape))) {
      return absl::InternalError("the rows do not fit the new shape.");
    }
    ctx->set_output(0, rows);
    return absl::OkStatus();
  }

 private:
  int64_t new_dim_ = 1;
};

LODESTAR_REGISTER(SequenceReshape);

}  // namespace
}  // namespace lodestar
