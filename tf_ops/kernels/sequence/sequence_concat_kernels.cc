#include <algorithm>
#include <vector>

#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/core/sequence/sequence_concat.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

namespace lodestar {
namespace {

absl::Status CheckRows(const TensorShape& first, const TensorShape& shape,
                       int k) {
  bool alike = shape.dims() >= 1 && shape.dims() == first.dims();
  for (int i = 1; alike && i < shape.dims(); ++i) {
    alike = shape.dim_size(i) == first.dim_size(i);
  }
  if (alike) return absl::OkStatus();
  return InvalidArgumentError("`values[", k, "]` must have rows as in ",
                              first.DebugString(), ", got shape ",
                              shape.DebugString(), ".");
}

// Copies rows of any dtype.
absl::Status RunSequenceConcat(OpKernelContext* ctx) {
  OpInputList values;
  OpInputList lods;
  LODESTAR_TRY(ctx->input_list("values", &values));
  LODESTAR_TRY(ctx->input_list("lods", &lods));
  const int num_levels = lods.size() / values.size();
  if (num_levels * values.size() != lods.size()) {
    return InvalidArgumentError("there are ", lods.size(),
                                " levels, which is not a multiple of the ",
                                values.size(), " batches.");
  }
  std::vector<LodLevels> levels(values.size());
  LodLevels splits;
  std::vector<int64_t> num_rows;
  for (int k = 0; k < values.size(); ++k) {
    LODESTAR_TRY(CheckRows(values[0].shape(), values[k].shape(), k));
    num_rows.push_back(values[k].dim_size(0));
    for (int l = 0; l < num_levels; ++l) {
      const Tensor& level = lods[k * num_levels + l];
      LODESTAR_TRY(CheckRank(level, "lods", 1));
      levels[k].push_back(FlatSpan<int64_t>(level));
    }
    splits.push_back(levels[k].back());
  }
  std::vector<int64_t> joined;
  LODESTAR_TRY(SequenceConcatSplits(levels, num_rows, &joined));
  LODESTAR_TRY(OutputVector(ctx, 1, joined));
  Tensor* output = nullptr;
  int64_t dim = 0;
  LODESTAR_TRY(AllocateRows(ctx, 0, values[0], joined.back(), &dim, &output));
  if (output->NumElements() == 0) return absl::OkStatus();
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  VisitCopied(output->dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = CopyWidth<T>(*output, dim);
    std::vector<const T*> rows;
    for (const Tensor& value : values) {
      rows.push_back(CopySource<T>(value));
    }
    T* out = CopyTarget<T>(output);
    SequenceConcatRuns(
        splits, joined, width,
        [&](size_t k, int64_t row, int64_t joined_row, int64_t count) {
          std::copy_n(rows[k] + row * width, count * width,
                      out + joined_row * width);
        },
        &parallel);
  });
  return absl::OkStatus();
}

template <typename T>
absl::Status RunSequenceConcatGradient(OpKernelContext* ctx) {
  const Tensor& gradient = ctx->input(0);
  LODESTAR_TRY(CheckNotScalar(gradient, "gradient"));
  const int count = ctx->num_outputs();
  std::vector<LodLevels> levels(count);
  LodLevels splits;
  std::vector<int64_t> num_rows;
  for (int k = 0; k < count; ++k) {
    LODESTAR_TRY(CheckRank(ctx->input(1 + k), "row_splits", 1));
    splits.push_back(FlatSpan<int64_t>(ctx->input(1 + k)));
    levels[k] = {splits[k]};
    num_rows.push_back(splits[k].empty() ? 0 : splits[k][splits[k].size() - 1]);
  }
  std::vector<int64_t> joined;
  LODESTAR_TRY(SequenceConcatSplits(levels, num_rows, &joined));
  if (gradient.dim_size(0) != joined.back()) {
    return InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                " rows, but the batches have ", joined.back(),
                                ".");
  }
  std::vector<T*> out(count);
  int64_t dim = 0;
  for (int k = 0; k < count; ++k) {
    Tensor* output = nullptr;
    LODESTAR_TRY(AllocateRows(ctx, k, gradient, num_rows[k], &dim, &output));
    out[k] = output->flat<T>().data();
  }
  if (gradient.NumElements() == 0) return absl::OkStatus();
  const T* in = gradient.flat<T>().data();
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  SequenceConcatRuns(
      splits, joined, dim,
      [&](size_t k, int64_t row, int64_t joined_row, int64_t count) {
        std::copy_n(in + joined_row * dim, count * dim, out[k] + row * dim);
      },
      &parallel);
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(SequenceConcat);
LODESTAR_REGISTER_FLOATS(LODESTAR_REGISTER_FUNCTION_TYPE,
                         SequenceConcatGradient);

}  // namespace
}  // namespace lodestar
