// Kernel of SequenceScatterPlaces. Contract:
// tf_ops/ops/sequence_scatter_ops.cc; algorithm:
// tf_ops/core/sequence_scatter.h.

#include <limits>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lod.h"
#include "tf_ops/core/sequence_scatter.h"
#include "tf_ops/kernels/status_util.h"
#include "tf_ops/kernels/tensor_util.h"

namespace lodestar {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

absl::Status ReadLevels(const OpInputList& list, const char* name,
                        int64_t num_rows, LodLevels* levels) {
  for (const Tensor& level : list) {
    TF_RETURN_IF_ERROR(CheckRank(level, name, 1));
    levels->push_back(FlatSpan<int64_t>(level));
  }
  const Status valid = ValidateLod(*levels, num_rows);
  if (valid.ok()) return absl::OkStatus();
  return InvalidArgumentError("`", name, "`: ", valid.message());
}

absl::Status CheckSameLevels(const LodLevels& index, const LodLevels& updates) {
  for (size_t k = 0; k < index.size(); ++k) {
    if (index[k].size() != updates[k].size()) {
      return InvalidArgumentError("`updates` has ", updates[k].size() - 1,
                                  " sequences at level ", k,
                                  ", but `index` has ", index[k].size() - 1);
    }
    for (int64_t i = 0; i < index[k].size(); ++i) {
      if (index[k][i] != updates[k][i]) {
        return InvalidArgumentError("`updates.lod[", k, "][", i, "]` is ",
                                    updates[k][i], ", but that of `index` is ",
                                    index[k][i]);
      }
    }
  }
  return absl::OkStatus();
}

class SequenceScatterPlacesOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    CatchBadAlloc(ctx, [&] { Places(ctx); });
  }

 private:
  static void Places(OpKernelContext* ctx) {
    const Tensor& index = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckRank(index, "index", 1));
    const char* const names[] = {"num_updates", "num_rows", "width"};
    int64_t scalars[3];
    for (int k = 0; k < 3; ++k) {
      const Tensor& scalar = ctx->input(ctx->num_inputs() - 3 + k);
      OP_REQUIRES_OK(ctx, CheckRank(scalar, names[k], 0));
      scalars[k] = scalar.scalar<int64_t>()();
      OP_REQUIRES(ctx, scalars[k] >= 0,
                  InvalidArgumentError("`", names[k], "` is ", scalars[k],
                                       ", wanted 0 or more"));
    }
    const auto [num_updates, num_rows, width] = scalars;
    OpInputList index_lod;
    OpInputList updates_lod;
    OP_REQUIRES_OK(ctx, ctx->input_list("index_lod", &index_lod));
    OP_REQUIRES_OK(ctx, ctx->input_list("updates_lod", &updates_lod));
    LodLevels levels;
    LodLevels same;
    OP_REQUIRES_OK(
        ctx, ReadLevels(index_lod, "index", index.NumElements(), &levels));
    OP_REQUIRES_OK(ctx, ReadLevels(updates_lod, "updates", num_updates, &same));
    OP_REQUIRES_OK(ctx, CheckSameLevels(levels, same));
    const int64_t batch = levels.back().size() - 1;
    OP_REQUIRES(
        ctx, num_rows == batch,
        InvalidArgumentError("`x` has ", num_rows, " rows, but `index` has ",
                             batch, " sequences"));
    OP_REQUIRES(
        ctx, batch == 0 || width <= std::numeric_limits<int64_t>::max() / batch,
        InvalidArgumentError("`x` has ", batch, " rows of ", width,
                             ", which is beyond int64"));
    Tensor* places = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, index.shape(), &places));
    OP_REQUIRES_OK(ctx, ToTensorFlow(SequenceScatterPlaces(
                            FlatSpan<int64_t>(index), levels.back(), width,
                            FlatSpan<int64_t>(places))));
  }
};

REGISTER_KERNEL_BUILDER(
    Name("Lodestar>SequenceScatterPlaces").Device(tensorflow::DEVICE_CPU),
    SequenceScatterPlacesOp);

}  // namespace
}  // namespace lodestar
