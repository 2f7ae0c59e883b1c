#include "tf_ops/core/sequence/selected_rows.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

absl::Status RunSelectedRowsValidate(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "rows", 1));
  LODESTAR_TRY(CheckRank(ctx->input(1), "num_values", 0));
  LODESTAR_TRY(CheckRank(ctx->input(2), "height", 0));
  LODESTAR_TRY(ValidateSelectedRows(FlatSpan<int64_t>(ctx->input(0)),
                                    ctx->input(1).scalar<int64_t>()(),
                                    ctx->input(2).scalar<int64_t>()()));
  ctx->set_output(0, ctx->input(0));
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(SelectedRowsValidate);

}  // namespace
}  // namespace lodestar
