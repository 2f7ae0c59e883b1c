// Kernels of level-of-detail offsets. Contracts:
// tf_ops/ops/sequence/lod_ops.cc; algorithms: tf_ops/core/sequence/lod.h.

#include <algorithm>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Inputs from `first` on, as levels.
absl::Status ReadLevels(OpKernelContext* ctx, int first, const char* name,
                        LodLevels* levels) {
  for (int k = first; k < ctx->num_inputs(); ++k) {
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(k), name, 1));
    levels->push_back(FlatSpan<int64_t>(ctx->input(k)));
  }
  return absl::OkStatus();
}

// Output k, as long as input k and `extra` more.
absl::Status AllocateLevels(OpKernelContext* ctx, int64_t extra,
                            std::vector<Span<int64_t>>* levels) {
  for (int k = 0; k < ctx->num_outputs(); ++k) {
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(
        k, {ctx->input(k).NumElements() + extra}, &output));
    levels->push_back(FlatSpan<int64_t>(output));
  }
  return absl::OkStatus();
}

class LodValidateOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(0), "num_rows", 0));
    LodLevels levels;
    OP_REQUIRES_OK(ctx, ReadLevels(ctx, 1, "levels", &levels));
    OP_REQUIRES_OK(ctx, ToTensorFlow(ValidateLod(
                            levels, ctx->input(0).scalar<int64_t>()())));
    for (int k = 1; k < ctx->num_inputs(); ++k) {
      ctx->set_output(k - 1, ctx->input(k));
    }
  }
};

class LodFromLengthsOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    LodLevels lengths;
    OP_REQUIRES_OK(ctx, ReadLevels(ctx, 0, "lengths", &lengths));
    std::vector<Span<int64_t>> levels;
    OP_REQUIRES_OK(ctx, AllocateLevels(ctx, 1, &levels));
    for (size_t k = 0; k < lengths.size(); ++k) {
      OP_REQUIRES_OK(ctx, ToTensorFlow(LodLengthsToOffsets(
                              static_cast<int>(k), lengths[k], levels[k])));
    }
  }
};

class LodToAbsoluteOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    LodLevels levels;
    OP_REQUIRES_OK(ctx, ReadLevels(ctx, 0, "levels", &levels));
    const Span<const int64_t>& last = levels.back();
    const int64_t rows = last.empty() ? 0 : last[last.size() - 1];
    OP_REQUIRES_OK(ctx, ToTensorFlow(ValidateLod(levels, rows)));
    std::vector<Span<int64_t>> absolute;
    OP_REQUIRES_OK(ctx, AllocateLevels(ctx, 0, &absolute));
    AbsoluteLod(levels, absolute);
  }
};

class LodFromAbsoluteOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    LodLevels absolute;
    OP_REQUIRES_OK(ctx, ReadLevels(ctx, 0, "absolute", &absolute));
    std::vector<Span<int64_t>> levels;
    OP_REQUIRES_OK(ctx, AllocateLevels(ctx, 0, &levels));
    OP_REQUIRES_OK(ctx, ToTensorFlow(RelativeLod(absolute, levels)));
  }
};

class LodSliceOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    CatchBadAlloc(ctx, [&] {
      OP_REQUIRES_OK(ctx, CheckRank(ctx->input(0), "num_rows", 0));
      OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "begin", 0));
      OP_REQUIRES_OK(ctx, CheckRank(ctx->input(2), "end", 0));
      LodLevels levels;
      OP_REQUIRES_OK(ctx, ReadLevels(ctx, 3, "levels", &levels));
      const int64_t sliced = ctx->num_outputs() - 1;
      const auto level = static_cast<int64_t>(levels.size()) - sliced;
      OP_REQUIRES(
          ctx, level >= 0,
          InvalidArgumentError("`num_sliced` is ", sliced, ", but there are ",
                               levels.size(), " levels"));
      std::vector<LodRange> ranges;
      OP_REQUIRES_OK(ctx, ToTensorFlow(SliceLod(
                              levels, ctx->input(0).scalar<int64_t>()(), level,
                              ctx->input(1).scalar<int64_t>()(),
                              ctx->input(2).scalar<int64_t>()(), &ranges)));
      Tensor* rows = nullptr;
      OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {2}, &rows));
      rows->vec<int64_t>()(0) = ranges.back().begin;
      rows->vec<int64_t>()(1) = ranges.back().end;
      for (int64_t j = 0; j < sliced; ++j) {
        const int64_t size = ranges[j].end - ranges[j].begin + 1;
        Tensor* output = nullptr;
        OP_REQUIRES_OK(ctx, ctx->allocate_output(j + 1, {size}, &output));
        const int64_t* from = levels[level + j].data() + ranges[j].begin;
        const int64_t first = from[0];
        std::transform(from, from + size, output->flat<int64_t>().data(),
                       [first](int64_t offset) { return offset - first; });
      }
    });
  }
};

class LodFromSparseOp : public tensorflow::OpKernel {
 public:
  explicit LodFromSparseOp(tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("drop_columns", &drop_columns_));
  }
  void Compute(OpKernelContext* ctx) override {
    CatchBadAlloc(ctx, [&] {
      const Tensor& indices = ctx->input(0);
      const Tensor& dense_shape = ctx->input(1);
      OP_REQUIRES_OK(ctx, CheckRank(indices, "indices", 2));
      OP_REQUIRES_OK(ctx, CheckRank(dense_shape, "dense_shape", 1));
      const int64_t rank = ctx->num_outputs() + 1;
      OP_REQUIRES(
          ctx, dense_shape.NumElements() == rank,
          InvalidArgumentError("`dense_shape` has ", dense_shape.NumElements(),
                               " dimensions, wanted ", rank));
      OP_REQUIRES(ctx, indices.dim_size(1) == rank,
                  InvalidArgumentError("`indices` has shape ",
                                       indices.shape().DebugString(),
                                       ", wanted [N,", rank, "]"));
      std::vector<std::vector<int64_t>> levels;
      OP_REQUIRES_OK(ctx,
                     ToTensorFlow(LodFromSparse(FlatSpan<int64_t>(indices),
                                                FlatSpan<int64_t>(dense_shape),
                                                drop_columns_, &levels)));
      for (int k = 0; k < ctx->num_outputs(); ++k) {
        Tensor* output = nullptr;
        OP_REQUIRES_OK(
            ctx, ctx->allocate_output(
                     k, {static_cast<int64_t>(levels[k].size())}, &output));
        std::copy(levels[k].begin(), levels[k].end(),
                  output->flat<int64_t>().data());
      }
    });
  }

 private:
  bool drop_columns_;
};

#define REGISTER(name) \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name).Device(DEVICE_CPU), name##Op)
REGISTER(LodValidate);
REGISTER(LodFromLengths);
REGISTER(LodToAbsolute);
REGISTER(LodFromAbsolute);
REGISTER(LodSlice);
REGISTER(LodFromSparse);
#undef REGISTER

}  // namespace
}  // namespace lodestar
