#include "tf_ops/core/sequence/sequence_reshape.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"
#if LODESTAR_CUDA
#include "tf_ops/kernels/sequence/cuda_op_util.h"
#endif

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

#if LODESTAR_CUDA

// The rows stay where they are, and the splits are in host memory.
LODESTAR_REGISTER_ON_GPU(SequenceReshape, SequenceReshapeOp,
                         .TypeConstraint("T", kMoved)
                             .HostMemory("row_splits")
                             .HostMemory("reshaped_splits"));

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
