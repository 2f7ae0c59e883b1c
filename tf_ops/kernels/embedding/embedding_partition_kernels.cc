#include <cstdint>
#include <vector>

#include "tf_ops/core/base/id_parts.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

// Outputs the rows of `tensor` by part, in the list `output`.
absl::Status OutputParts(OpKernelContext* ctx, const IdParts& parts,
                         const Tensor& tensor, const char* output,
                         const ParallelFor* parallel) {
  OpOutputList list;
  LODESTAR_TRY(ctx->output_list(output, &list));
  std::vector<char*> data;
  int64_t dim = 0;
  for (int p = 0; p < list.size(); ++p) {
    TensorShape shape;
    LODESTAR_TRY(ReplaceRows(tensor.shape(), parts.size(p), &shape, &dim));
    Tensor* part = nullptr;
    LODESTAR_TRY(list.allocate(p, shape, &part));
    data.push_back(CopyTarget<char>(part));
  }
  parts.SplitRows(CopySource<char>(tensor), CopyWidth<char>(tensor, dim), data,
                  parallel);
  return absl::OkStatus();
}

class EmbeddingPartitionOp : public Kernel {
 public:
  explicit EmbeddingPartitionOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_parts", &num_parts_));
    has_rows_ = ctx->num_inputs() == 2;
  }

  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& ids = ctx->input(0);
    LODESTAR_TRY(CheckRank(ids, "ids", 1));
    if (has_rows_) {
      LODESTAR_TRY(CheckRowsOfIds(ctx->input(1), ids.NumElements()));
    }
    Tensor* places = nullptr;
    LODESTAR_TRY(
        ctx->allocate_output(ctx->num_outputs() - 1, ids.shape(), &places));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    const IdParts parts(FlatSpan<int64_t>(ids), num_parts_,
                        FlatSpan<int64_t>(places), &parallel);
    if (!has_rows_) return OutputParts(ctx, parts, ids, "parts", &parallel);
    LODESTAR_TRY(OutputParts(ctx, parts, ids, "part_ids", &parallel));
    return OutputParts(ctx, parts, ctx->input(1), "part_rows", &parallel);
  }

 private:
  int num_parts_ = 0;
  bool has_rows_ = false;
};

using EmbeddingPartitionRowsOp = EmbeddingPartitionOp;

absl::Status RunEmbeddingAssemble(OpKernelContext* ctx) {
  OpInputList rows;
  LODESTAR_TRY(ctx->input_list("rows", &rows));
  std::vector<const char*> parts;
  std::vector<int64_t> begins = {0};
  TensorShape shape, first_shape;
  int64_t dim = 0;
  for (int p = 0; p < rows.size(); ++p) {
    if (rows[p].dims() == 0) {
      return InvalidArgumentError("`rows[", p, "]` must not be a scalar.");
    }
    LODESTAR_TRY(ReplaceRows(rows[p].shape(), 0, &shape, &dim));
    if (p == 0) first_shape = shape;
    if (shape != first_shape) {
      return InvalidArgumentError(
          "`rows[", p, "]` has shape ", rows[p].shape().DebugString(),
          ", but `rows[0]` has shape ", rows[0].shape().DebugString(), ".");
    }
    int64_t end = 0;
    if (__builtin_add_overflow(begins.back(), rows[p].dim_size(0), &end)) {
      return InvalidArgumentError("`rows` must have at most 2^63 - 1 rows.");
    }
    parts.push_back(CopySource<char>(rows[p]));
    begins.push_back(end);
  }
  const Tensor& places_tensor = ctx->input(rows.size());
  LODESTAR_TRY(CheckRank(places_tensor, "places", 1));
  const Span<const int64_t> places = FlatSpan<int64_t>(places_tensor);
  for (int64_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0 || places[i] >= begins.back()) {
      return InvalidArgumentError("`places[", i, "]` must be in [0, ",
                                  begins.back(), "), got ", places[i], ".");
    }
  }
  LODESTAR_TRY(ReplaceRows(rows[0].shape(), places.size(), &shape, &dim));
  Tensor* output = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 0, shape, &output));
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  AssembleRows(parts, begins, places, CopyWidth<char>(rows[0], dim),
               CopyTarget<char>(output), &parallel);
  return absl::OkStatus();
}

LODESTAR_REGISTER(EmbeddingPartition);
LODESTAR_REGISTER(EmbeddingPartitionRows);
LODESTAR_REGISTER_FUNCTION(EmbeddingAssemble);

}  // namespace
}  // namespace lodestar
