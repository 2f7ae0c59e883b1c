#include "tf_ops/core/sequence/sequence_topk.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

namespace lodestar {
namespace {

template <typename T>
class SequenceTopkOp : public Kernel {
 public:
  explicit SequenceTopkOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("channels", &channels_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("k", &k_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    LODESTAR_TRY(CheckRank(values, "values", 1));
    // Only x has values whose number is known.
    LODESTAR_TRY(CheckSplits(ctx->input(1), "x_splits", values.NumElements()));
    LODESTAR_TRY(CheckSplits(ctx->input(2), "row_splits"));
    LODESTAR_TRY(CheckSplits(ctx->input(3), "col_splits"));
    const Span<const int64_t> x = FlatSpan<int64_t>(ctx->input(1));
    const Span<const int64_t> row = FlatSpan<int64_t>(ctx->input(2));
    const Span<const int64_t> col = FlatSpan<int64_t>(ctx->input(3));
    LODESTAR_TRY(CheckMatrixSizes(x, row, col, channels_));
    TensorShape shape({row[row.size() - 1]});
    LODESTAR_TRY(shape.AddDimWithStatus(channels_));
    LODESTAR_TRY(shape.AddDimWithStatus(k_));
    Tensor* index = nullptr;
    LODESTAR_TRY(AllocateOutput(ctx, 0, shape, &index));
    if (index->NumElements() == 0) return absl::OkStatus();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceTopk<T>(values.flat<T>().data(), x, row, col, channels_, k_,
                    index->flat<int64_t>().data(), &parallel);
    return absl::OkStatus();
  }

 private:
  int64_t channels_ = 1;
  int64_t k_ = 1;
};

LODESTAR_REGISTER_FLOATS(LODESTAR_REGISTER_TYPE, SequenceTopk);

}  // namespace
}  // namespace lodestar
