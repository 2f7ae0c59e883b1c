// ScoreIds: the dot product of a query with the row of each id. Reads blocks of
// rows, so that [N, D] values are never in memory at once.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf_ops/kernels/embedding/op_table.h"

namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("ScoreIds")
    .Input("handle: resource")
    .Input("query: float32")
    .Input("ids: int64")
    .Output("scores: float32")
    .SetIsStateful()  // Equal calls may have different results.
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->input(2));
      return absl::OkStatus();
    });

lodestar::Status Score(const lodestar::OpTable& table, const Tensor& query,
                       const Tensor& ids, Tensor* scores) {
  const int64_t dim = table->dim();
  if (table->type() != lodestar::RowType::kFloat32) {
    return lodestar::InvalidArgument("rows must be float32, got ",
                                     NameOf(table->type()), ".");
  }
  if (query.dims() != 1 || query.dim_size(0) != dim) {
    return lodestar::InvalidArgument("`query` must have shape [", dim,
                                     "], got ", query.shape().DebugString(),
                                     ".");
  }
  const float* const begin = query.flat<float>().data();
  const int64_t block = std::min<int64_t>(ids.NumElements(), 4096);
  std::vector<float> rows(block * dim);
  for (int64_t n = 0; n < ids.NumElements(); n += block) {
    const int64_t count = std::min(block, ids.NumElements() - n);
    // A missing id has a row of zeros.
    LODESTAR_RETURN_IF_ERROR(table->FindRows(
        {ids.flat<int64_t>().data() + n, count}, /*padding_id=*/nullptr,
        lodestar::Missing(), rows.data(), /*found=*/nullptr, table.on()));
    for (int64_t i = 0; i < count; ++i) {
      scores->flat<float>()(n + i) =
          std::inner_product(begin, begin + dim, rows.data() + i * dim, 0.0f);
    }
  }
  return lodestar::Status();
}

class ScoreIdsOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const lodestar::OpTable table(ctx, /*input=*/0);
    if (!table.ok()) return;
    const Tensor& ids = ctx->input(2);
    Tensor* scores = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, ids.shape(), &scores));
    table.Check(Score(table, ctx->input(1), ids, scores));
  }
};

REGISTER_KERNEL_BUILDER(Name("ScoreIds").Device(tensorflow::DEVICE_CPU),
                        ScoreIdsOp);

}  // namespace
