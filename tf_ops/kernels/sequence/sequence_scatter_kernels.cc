#include <cstdint>
#include <vector>

#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/core/sequence/sequence_scatter.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#if LODESTAR_CUDA
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda_op_util.h"
#endif

namespace lodestar {
namespace {

absl::Status ReadLevels(const OpInputList& list, const char* name,
                        int64_t num_rows, LodLevels* levels) {
  for (const Tensor& level : list) {
    LODESTAR_TRY(CheckRank(level, name, 1));
    levels->push_back(FlatSpan<int64_t>(level));
  }
  return ToTensorFlow(
      Prefixed(ValidateLod(*levels, num_rows), "`", name, "`: "));
}

absl::Status CheckSameLevels(const LodLevels& index, const LodLevels& updates) {
  for (size_t k = 0; k < index.size(); ++k) {
    if (index[k].size() != updates[k].size()) {
      return InvalidArgumentError(
          "`updates` has ", updates[k].size() - 1, " sequences at level ", k,
          ", but `index` has ", index[k].size() - 1, ".");
    }
    for (int64_t i = 0; i < index[k].size(); ++i) {
      if (index[k][i] != updates[k][i]) {
        return InvalidArgumentError("`updates.lod[", k, "][", i, "]` must be ",
                                    index[k][i], " as in `index`, got ",
                                    updates[k][i], ".");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReadShape(const Tensor& tensor, const char* name,
                       TensorShape* shape) {
  LODESTAR_TRY(CheckRank(tensor, name, 1));
  return tensorflow::TensorShapeUtils::MakeShape(tensor.flat<int64_t>().data(),
                                                 tensor.NumElements(), shape);
}

// Checks that updates [P, ...] match the rows of x [B, D, ...].
absl::Status CheckShapes(const TensorShape& updates, const TensorShape& x) {
  bool fits = updates.dims() >= 1 && x.dims() >= 2;
  const bool is_column =
      fits && x.dims() == 2 && updates.dims() == 2 && updates.dim_size(1) == 1;
  if (!is_column) {
    fits = fits && updates.dims() == x.dims() - 1;
    for (int d = 1; fits && d < updates.dims(); ++d) {
      fits = updates.dim_size(d) == x.dim_size(d + 1);
    }
  }
  if (fits) return absl::OkStatus();
  return InvalidArgumentError("`updates` has shape ", updates.DebugString(),
                              ", which does not match `x` of shape ",
                              x.DebugString(), ".");
}

// The checked inputs except the index, in host memory, and the output.
struct Scattering {
  Span<const int64_t> splits;
  int64_t width = 0;
  Tensor* places = nullptr;
};

absl::Status PrepareScatter(OpKernelContext* ctx, Scattering* s) {
  const Tensor& index = ctx->input(0);
  LODESTAR_TRY(CheckRank(index, "index", 1));
  TensorShape updates_shape;
  TensorShape x_shape;
  const int last = ctx->num_inputs() - 1;
  LODESTAR_TRY(
      ReadShape(ctx->input(last - 1), "updates_shape", &updates_shape));
  LODESTAR_TRY(ReadShape(ctx->input(last), "x_shape", &x_shape));
  LODESTAR_TRY(CheckShapes(updates_shape, x_shape));
  const int64_t num_updates = updates_shape.dim_size(0);
  const int64_t num_rows = x_shape.dim_size(0);
  s->width = x_shape.dim_size(1);
  OpInputList index_lod;
  OpInputList updates_lod;
  LODESTAR_TRY(ctx->input_list("index_lod", &index_lod));
  LODESTAR_TRY(ctx->input_list("updates_lod", &updates_lod));
  LodLevels levels;
  LodLevels same;
  LODESTAR_TRY(ReadLevels(index_lod, "index", index.NumElements(), &levels));
  LODESTAR_TRY(ReadLevels(updates_lod, "updates", num_updates, &same));
  LODESTAR_TRY(CheckSameLevels(levels, same));
  const int64_t batch = levels.back().size() - 1;
  if (num_rows != batch) {
    return InvalidArgumentError("`x` has ", num_rows, " rows, but `index` has ",
                                batch, " sequences.");
  }
  s->splits = levels.back();
  return AllocateOutput(ctx, 0, index.shape(), &s->places);
}

absl::Status RunSequenceScatterPlaces(OpKernelContext* ctx) {
  Scattering s;
  LODESTAR_TRY(PrepareScatter(ctx, &s));
  return ToTensorFlow(SequenceScatterPlaces(FlatSpan<int64_t>(ctx->input(0)),
                                            s.splits, s.width,
                                            FlatSpan<int64_t>(s.places)));
}

LODESTAR_REGISTER_FUNCTION(SequenceScatterPlaces);

#if LODESTAR_CUDA

absl::Status RunSequenceScatterPlacesOnGpu(OpKernelContext* ctx) {
  const Tensor& index = ctx->input(0);
  Scattering s;
  LODESTAR_TRY(PrepareScatter(ctx, &s));
  if (index.NumElements() == 0) return absl::OkStatus();
  DeviceBytes splits;
  LODESTAR_TRY(splits.CopyFrom(ctx, s.splits));
  DeviceBytes wrong;
  LODESTAR_TRY(wrong.Allocate(ctx, sizeof(int32_t)));
  LODESTAR_TRY(ToTensorFlow(
      LaunchSequenceScatterPlaces(CudaStream(ctx), index.flat<int64_t>().data(),
                                  splits.splits(index.NumElements()), s.width,
                                  s.places->flat<int64_t>().data(),
                                  static_cast<int32_t*>(wrong.data())),
      "scatter"));
  int32_t is_wrong = 0;
  LODESTAR_TRY(CopyToHost(ctx, wrong.data(), sizeof(is_wrong), &is_wrong));
  if (is_wrong == 0) return absl::OkStatus();
  // Finds the first wrong index again.
  std::vector<int64_t> places(index.NumElements());
  LODESTAR_TRY(
      CopyToHost(ctx, index.data(), index.TotalBytes(), places.data()));
  return ToTensorFlow(SequenceScatterPlaces(places, s.splits, s.width, places));
}

LODESTAR_REGISTER_ON_GPU(SequenceScatterPlaces,
                         FunctionKernel<RunSequenceScatterPlacesOnGpu>,
                         .HostMemory("index_lod")
                             .HostMemory("updates_lod")
                             .HostMemory("updates_shape")
                             .HostMemory("x_shape"));

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
