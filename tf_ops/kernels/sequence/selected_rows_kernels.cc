// Kernels of selected rows. Contracts:
// tf_ops/ops/sequence/selected_rows_ops.cc; algorithms:
// tf_ops/core/sequence/selected_rows.h.

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/sequence/selected_rows.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelContext;

class SelectedRowsValidateOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(0), "rows", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "num_values", 0));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(2), "height", 0));
    OP_REQUIRES_OK(ctx, ToTensorFlow(ValidateSelectedRows(
                            FlatSpan<int64_t>(ctx->input(0)),
                            ctx->input(1).scalar<int64_t>()(),
                            ctx->input(2).scalar<int64_t>()())));
    ctx->set_output(0, ctx->input(0));
  }
};

REGISTER_KERNEL_BUILDER(
    Name("Lodestar>SelectedRowsValidate").Device(DEVICE_CPU),
    SelectedRowsValidateOp);

}  // namespace
}  // namespace lodestar
