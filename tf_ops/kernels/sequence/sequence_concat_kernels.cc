// Kernels of SequenceConcat and SequenceConcatGradient. Contracts:
// tf_ops/ops/sequence/sequence_concat_ops.cc; algorithm:
// tf_ops/core/sequence/sequence_concat.h.

#include <algorithm>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/core/sequence/sequence_concat.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Rows are copied whatever they are.
class SequenceConcatOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    CatchBadAlloc(ctx, [&] { Concat(ctx); });
  }

 private:
  static void Concat(OpKernelContext* ctx) {
    tensorflow::OpInputList values;
    tensorflow::OpInputList lods;
    OP_REQUIRES_OK(ctx, ctx->input_list("values", &values));
    OP_REQUIRES_OK(ctx, ctx->input_list("lods", &lods));
    const int num_levels = lods.size() / values.size();
    OP_REQUIRES(ctx, num_levels * values.size() == lods.size(),
                InvalidArgumentError("there are ", lods.size(),
                                     " levels, wanted equally many for each "
                                     "of ",
                                     values.size(), " batches"));
    std::vector<LodLevels> levels(values.size());
    LodLevels splits;
    std::vector<int64_t> num_rows;
    for (int k = 0; k < values.size(); ++k) {
      OP_REQUIRES_OK(ctx, CheckRows(values[0].shape(), values[k].shape(), k));
      num_rows.push_back(values[k].dim_size(0));
      for (int l = 0; l < num_levels; ++l) {
        const Tensor& level = lods[k * num_levels + l];
        OP_REQUIRES_OK(ctx, CheckRank(level, "lods", 1));
        levels[k].push_back(FlatSpan<int64_t>(level));
      }
      splits.push_back(levels[k].back());
    }
    std::vector<int64_t> joined;
    OP_REQUIRES_OK(
        ctx, ToTensorFlow(SequenceConcatSplits(levels, num_rows, &joined)));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(
        ctx,
        AllocateOutput(ctx, 1, {static_cast<int64_t>(joined.size())}, &output));
    std::copy(joined.begin(), joined.end(), output->flat<int64_t>().data());
    TensorShape shape;
    int64_t dim = 0;
    OP_REQUIRES_OK(ctx,
                   ReplaceRows(values[0].shape(), joined.back(), &shape, &dim));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, shape, &output));
    if (output->NumElements() == 0) return;
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
          [&](size_t k, int64_t row, int64_t place, int64_t count) {
            std::copy_n(rows[k] + row * width, count * width,
                        out + place * width);
          },
          &parallel);
    });
  }

  static absl::Status CheckRows(const TensorShape& first,
                                const TensorShape& shape, int k) {
    bool alike = shape.dims() >= 1 && shape.dims() == first.dims();
    for (int i = 1; alike && i < shape.dims(); ++i) {
      alike = shape.dim_size(i) == first.dim_size(i);
    }
    if (alike) return absl::OkStatus();
    return InvalidArgumentError("`values[", k, "]` has shape ",
                                shape.DebugString(), ", wanted rows as in ",
                                first.DebugString());
  }
};

template <typename T>
class SequenceConcatGradientOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    CatchBadAlloc(ctx, [&] { Split(ctx); });
  }

 private:
  static void Split(OpKernelContext* ctx) {
    const Tensor& gradient = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckNoScalar(gradient, "gradient"));
    const int count = ctx->num_outputs();
    std::vector<LodLevels> levels(count);
    LodLevels splits;
    std::vector<int64_t> num_rows;
    for (int k = 0; k < count; ++k) {
      OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1 + k), "row_splits", 1));
      splits.push_back(FlatSpan<int64_t>(ctx->input(1 + k)));
      levels[k] = {splits[k]};
      num_rows.push_back(splits[k].empty() ? 0
                                           : splits[k][splits[k].size() - 1]);
    }
    std::vector<int64_t> joined;
    OP_REQUIRES_OK(
        ctx, ToTensorFlow(SequenceConcatSplits(levels, num_rows, &joined)));
    OP_REQUIRES(
        ctx, gradient.dim_size(0) == joined.back(),
        InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                             " rows, but the batches have ", joined.back()));
    std::vector<T*> out(count);
    int64_t dim = 0;
    for (int k = 0; k < count; ++k) {
      TensorShape shape;
      OP_REQUIRES_OK(ctx,
                     ReplaceRows(gradient.shape(), num_rows[k], &shape, &dim));
      Tensor* output = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, k, shape, &output));
      out[k] = output->flat<T>().data();
    }
    if (gradient.NumElements() == 0) return;
    const T* in = gradient.flat<T>().data();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceConcatRuns(
        splits, joined, dim,
        [&](size_t k, int64_t row, int64_t place, int64_t count) {
          std::copy_n(in + place * dim, count * dim, out[k] + row * dim);
        },
        &parallel);
  }
};

REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceConcat").Device(DEVICE_CPU),
                        SequenceConcatOp);

#define REGISTER(T)                                               \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceConcatGradient") \
                              .Device(DEVICE_CPU)                 \
                              .TypeConstraint<T>("T"),            \
                          SequenceConcatGradientOp<T>);
TF_CALL_FLOAT_TYPES(REGISTER)
#undef REGISTER

}  // namespace
}  // namespace lodestar
