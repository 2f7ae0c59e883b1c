// Kernels of level-of-detail offsets. Contracts: tf_ops/ops/lod_ops.cc;
// algorithms: tf_ops/core/lod.h.

#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lod.h"
#include "tf_ops/kernels/status_util.h"
#include "tf_ops/kernels/tensor_util.h"

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

#define REGISTER(name) \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name).Device(DEVICE_CPU), name##Op)
REGISTER(LodValidate);
REGISTER(LodFromLengths);
REGISTER(LodToAbsolute);
REGISTER(LodFromAbsolute);
#undef REGISTER

}  // namespace
}  // namespace lodestar
