#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

absl::Status RunLodValidate(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "num_rows", 0));
  LodLevels levels;
  for (int k = 1; k < ctx->num_inputs(); ++k) {
    LODESTAR_TRY(CheckRank(ctx->input(k), "levels", 1));
    levels.push_back(FlatSpan<int64_t>(ctx->input(k)));
    ctx->set_output(k - 1, ctx->input(k));
  }
  return ToTensorFlow(ValidateLod(levels, ctx->input(0).scalar<int64_t>()()));
}

LODESTAR_REGISTER_FUNCTION(LodValidate);

}  // namespace
}  // namespace lodestar
