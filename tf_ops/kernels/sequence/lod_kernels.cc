#include <algorithm>
#include <vector>

#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

// Reads the inputs from `first` on as levels.
absl::Status ReadLevels(OpKernelContext* ctx, int first, const char* name,
                        LodLevels* levels) {
  for (int k = first; k < ctx->num_inputs(); ++k) {
    LODESTAR_TRY(CheckRank(ctx->input(k), name, 1));
    levels->push_back(FlatSpan<int64_t>(ctx->input(k)));
  }
  return absl::OkStatus();
}

// Allocates output k with the length of input k plus `extra`.
absl::Status AllocateLevels(OpKernelContext* ctx, int64_t extra,
                            std::vector<Span<int64_t>>* levels) {
  for (int k = 0; k < ctx->num_outputs(); ++k) {
    Tensor* output = nullptr;
    LODESTAR_TRY(ctx->allocate_output(k, {ctx->input(k).NumElements() + extra},
                                      &output));
    levels->push_back(FlatSpan<int64_t>(output));
  }
  return absl::OkStatus();
}

absl::Status RunLodValidate(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "num_rows", 0));
  LodLevels levels;
  LODESTAR_TRY(ReadLevels(ctx, 1, "levels", &levels));
  LODESTAR_TRY(ValidateLod(levels, ctx->input(0).scalar<int64_t>()()));
  for (int k = 1; k < ctx->num_inputs(); ++k) {
    ctx->set_output(k - 1, ctx->input(k));
  }
  return absl::OkStatus();
}

absl::Status RunLodFromLengths(OpKernelContext* ctx) {
  LodLevels lengths;
  LODESTAR_TRY(ReadLevels(ctx, 0, "lengths", &lengths));
  std::vector<Span<int64_t>> levels;
  LODESTAR_TRY(AllocateLevels(ctx, 1, &levels));
  for (size_t k = 0; k < lengths.size(); ++k) {
    LODESTAR_TRY(LengthsToOffsets(StrCat("lengths[", k, "]"), lengths[k],
                                  kAnyLength, levels[k]));
  }
  return absl::OkStatus();
}

absl::Status RunLodToAbsolute(OpKernelContext* ctx) {
  LodLevels levels;
  LODESTAR_TRY(ReadLevels(ctx, 0, "levels", &levels));
  const Span<const int64_t>& last = levels.back();
  const int64_t rows = last.empty() ? 0 : last[last.size() - 1];
  LODESTAR_TRY(ValidateLod(levels, rows));
  std::vector<Span<int64_t>> absolute;
  LODESTAR_TRY(AllocateLevels(ctx, 0, &absolute));
  AbsoluteLod(levels, absolute);
  return absl::OkStatus();
}

absl::Status RunLodFromAbsolute(OpKernelContext* ctx) {
  LodLevels absolute;
  LODESTAR_TRY(ReadLevels(ctx, 0, "absolute", &absolute));
  std::vector<Span<int64_t>> levels;
  LODESTAR_TRY(AllocateLevels(ctx, 0, &levels));
  return ToTensorFlow(RelativeLod(absolute, levels));
}

absl::Status RunLodSlice(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "num_rows", 0));
  LODESTAR_TRY(CheckRank(ctx->input(1), "begin", 0));
  LODESTAR_TRY(CheckRank(ctx->input(2), "end", 0));
  LodLevels levels;
  LODESTAR_TRY(ReadLevels(ctx, 3, "levels", &levels));
  const int64_t sliced = ctx->num_outputs() - 1;
  const auto level = static_cast<int64_t>(levels.size()) - sliced;
  if (level < 0) {
    return InvalidArgumentError("`num_sliced` is ", sliced, ", but there are ",
                                levels.size(), " levels.");
  }
  std::vector<LodRange> ranges;
  LODESTAR_TRY(SliceLod(levels, ctx->input(0).scalar<int64_t>()(), level,
                        ctx->input(1).scalar<int64_t>()(),
                        ctx->input(2).scalar<int64_t>()(), &ranges));
  Tensor* rows = nullptr;
  LODESTAR_TRY(ctx->allocate_output(0, {2}, &rows));
  rows->vec<int64_t>()(0) = ranges.back().begin;
  rows->vec<int64_t>()(1) = ranges.back().end;
  for (int64_t j = 0; j < sliced; ++j) {
    const int64_t size = ranges[j].end - ranges[j].begin + 1;
    Tensor* output = nullptr;
    LODESTAR_TRY(ctx->allocate_output(j + 1, {size}, &output));
    const int64_t* from = levels[level + j].data() + ranges[j].begin;
    const int64_t first = from[0];
    std::transform(from, from + size, output->flat<int64_t>().data(),
                   [first](int64_t offset) { return offset - first; });
  }
  return absl::OkStatus();
}

class LodFromSparseOp : public Kernel {
 public:
  explicit LodFromSparseOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("drop_columns", &drop_columns_));
  }
  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& indices = ctx->input(0);
    const Tensor& dense_shape = ctx->input(1);
    LODESTAR_TRY(CheckRank(indices, "indices", 2));
    LODESTAR_TRY(CheckRank(dense_shape, "dense_shape", 1));
    const int64_t rank = ctx->num_outputs() + 1;
    if (dense_shape.NumElements() != rank) {
      return InvalidArgumentError("`dense_shape` must have ", rank,
                                  " dimensions, got ",
                                  dense_shape.NumElements(), ".");
    }
    if (indices.dim_size(1) != rank) {
      return InvalidArgumentError("`indices` must have shape [N,", rank,
                                  "], got ", indices.shape().DebugString(),
                                  ".");
    }
    std::vector<std::vector<int64_t>> levels;
    LODESTAR_TRY(LodFromSparse(FlatSpan<int64_t>(indices),
                               FlatSpan<int64_t>(dense_shape), drop_columns_,
                               &levels));
    for (int k = 0; k < ctx->num_outputs(); ++k) {
      LODESTAR_TRY(OutputVector(ctx, k, levels[k]));
    }
    return absl::OkStatus();
  }

 private:
  bool drop_columns_;
};

LODESTAR_REGISTER_FUNCTION(LodValidate);
LODESTAR_REGISTER_FUNCTION(LodFromLengths);
LODESTAR_REGISTER_FUNCTION(LodToAbsolute);
LODESTAR_REGISTER_FUNCTION(LodFromAbsolute);
LODESTAR_REGISTER_FUNCTION(LodSlice);
LODESTAR_REGISTER(LodFromSparse);

}  // namespace
}  // namespace lodestar
