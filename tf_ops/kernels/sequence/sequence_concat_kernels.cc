#include <algorithm>
#include <cstdint>
#include <vector>

#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/core/sequence/sequence_concat.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"
#if LODESTAR_CUDA
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda_op_util.h"
#endif

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

// The checked splits of the batches and of the result, in host memory, and the
// outputs with `dim` values per row.
struct Concatenation {
  LodLevels splits;
  std::vector<int64_t> joined;
  int64_t dim = 0;
  std::vector<Tensor*> outputs;  // of the gradient: one per batch
};

absl::Status PrepareConcat(OpKernelContext* ctx, OpInputList* values,
                           Concatenation* c) {
  OpInputList lods;
  LODESTAR_TRY(ctx->input_list("values", values));
  LODESTAR_TRY(ctx->input_list("lods", &lods));
  const int num_levels = lods.size() / values->size();
  if (num_levels * values->size() != lods.size()) {
    return InvalidArgumentError("there are ", lods.size(),
                                " levels, which is not a multiple of the ",
                                values->size(), " batches.");
  }
  std::vector<LodLevels> levels(values->size());
  std::vector<int64_t> num_rows;
  for (int k = 0; k < values->size(); ++k) {
    LODESTAR_TRY(CheckRows((*values)[0].shape(), (*values)[k].shape(), k));
    num_rows.push_back((*values)[k].dim_size(0));
    for (int l = 0; l < num_levels; ++l) {
      const Tensor& level = lods[k * num_levels + l];
      LODESTAR_TRY(CheckRank(level, "lods", 1));
      levels[k].push_back(FlatSpan<int64_t>(level));
    }
    c->splits.push_back(levels[k].back());
  }
  LODESTAR_TRY(SequenceConcatSplits(levels, num_rows, &c->joined));
  LODESTAR_TRY(OutputVector(ctx, 1, c->joined));
  c->outputs.resize(1);
  return AllocateRows(ctx, 0, (*values)[0], c->joined.back(), &c->dim,
                      &c->outputs[0]);
}

absl::Status PrepareConcatGradient(OpKernelContext* ctx, Concatenation* c) {
  const Tensor& gradient = ctx->input(0);
  LODESTAR_TRY(CheckNotScalar(gradient, "gradient"));
  const int count = ctx->num_outputs();
  std::vector<LodLevels> levels(count);
  std::vector<int64_t> num_rows;
  for (int k = 0; k < count; ++k) {
    LODESTAR_TRY(CheckRank(ctx->input(1 + k), "row_splits", 1));
    const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1 + k));
    c->splits.push_back(splits);
    levels[k] = {splits};
    num_rows.push_back(splits.empty() ? 0 : splits[splits.size() - 1]);
  }
  LODESTAR_TRY(SequenceConcatSplits(levels, num_rows, &c->joined));
  if (gradient.dim_size(0) != c->joined.back()) {
    return InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                " rows, but the batches have ",
                                c->joined.back(), ".");
  }
  c->outputs.resize(count);
  for (int k = 0; k < count; ++k) {
    LODESTAR_TRY(
        AllocateRows(ctx, k, gradient, num_rows[k], &c->dim, &c->outputs[k]));
  }
  return absl::OkStatus();
}

// Copies rows of any dtype.
absl::Status RunSequenceConcat(OpKernelContext* ctx) {
  OpInputList values;
  Concatenation c;
  LODESTAR_TRY(PrepareConcat(ctx, &values, &c));
  Tensor* const output = c.outputs[0];
  if (output->NumElements() == 0) return absl::OkStatus();
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  VisitCopied(output->dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = CopyWidth<T>(*output, c.dim);
    std::vector<const T*> rows;
    for (const Tensor& value : values) {
      rows.push_back(CopySource<T>(value));
    }
    T* out = CopyTarget<T>(output);
    SequenceConcatRuns(
        c.splits, c.joined, width,
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
  Concatenation c;
  LODESTAR_TRY(PrepareConcatGradient(ctx, &c));
  const Tensor& gradient = ctx->input(0);
  if (gradient.NumElements() == 0) return absl::OkStatus();
  std::vector<T*> out;
  for (Tensor* output : c.outputs) out.push_back(output->flat<T>().data());
  const T* in = gradient.flat<T>().data();
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  SequenceConcatRuns(
      c.splits, c.joined, c.dim,
      [&](size_t k, int64_t row, int64_t joined_row, int64_t count) {
        std::copy_n(in + joined_row * c.dim, count * c.dim,
                    out[k] + row * c.dim);
      },
      &parallel);
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(SequenceConcat);
LODESTAR_REGISTER_FLOATS(LODESTAR_REGISTER_FUNCTION_TYPE,
                         SequenceConcatGradient);

#if LODESTAR_CUDA

// Calls launch(k, runs) with the rows of each batch k that has values, and
// where they are in the result.
template <typename Launch>
absl::Status ForBatches(OpKernelContext* ctx, const Concatenation& c,
                        const Launch& launch) {
  std::vector<int64_t> places(c.joined.begin(), c.joined.end() - 1);
  for (size_t k = 0; k < c.splits.size(); ++k) {
    const Span<const int64_t> splits = c.splits[k];
    if (splits[splits.size() - 1] * c.dim > 0) {
      RunsOnDevice runs;
      LODESTAR_TRY(runs.Init(ctx, splits, places));
      LODESTAR_TRY(ToTensorFlow(launch(k, runs.get()), "concatenation"));
    }
    for (size_t b = 0; b < places.size(); ++b) {
      places[b] += splits[b + 1] - splits[b];
    }
  }
  return absl::OkStatus();
}

absl::Status RunSequenceConcatOnGpu(OpKernelContext* ctx) {
  OpInputList values;
  Concatenation c;
  LODESTAR_TRY(PrepareConcat(ctx, &values, &c));
  Tensor* const output = c.outputs[0];
  return ForBatches(ctx, c, [&](size_t k, const DeviceRuns& runs) {
    return LaunchScatterRuns(CudaStream(ctx), values[k].data(),
                             RowBytes(*output, c.dim), runs, output->data());
  });
}

absl::Status RunSequenceConcatGradientOnGpu(OpKernelContext* ctx) {
  Concatenation c;
  LODESTAR_TRY(PrepareConcatGradient(ctx, &c));
  const Tensor& gradient = ctx->input(0);
  return ForBatches(ctx, c, [&](size_t k, const DeviceRuns& runs) {
    return LaunchGatherRuns(CudaStream(ctx), gradient.data(),
                            RowBytes(gradient, c.dim), runs,
                            c.outputs[k]->data());
  });
}

LODESTAR_REGISTER_ON_GPU(
    SequenceConcat, FunctionKernel<RunSequenceConcatOnGpu>,
    .TypeConstraint("T", kMoved).HostMemory("lods").HostMemory("row_splits"));
LODESTAR_REGISTER_ON_GPU(
    SequenceConcatGradient, FunctionKernel<RunSequenceConcatGradientOnGpu>,
    .TypeConstraint("T", kFloats).HostMemory("row_splits"));

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
