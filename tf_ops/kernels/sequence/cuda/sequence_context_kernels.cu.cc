#include <cstdint>

#include "tf_ops/core/base/float16.h"
#include "tf_ops/core/base/pack.h"
#include "tf_ops/core/sequence/sequence_context.h"
#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/number.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda/sequence_rows_cuda.h"

namespace lodestar {
namespace {

struct ContextMap {
  DeviceSplits splits;
  int64_t start;
  int64_t size;

  __device__ int64_t Source(int64_t position) const {
    const int64_t row = position / size;
    const int64_t b = splits.Find(row);
    if (b < 0) return -1;
    const SequenceRange range = splits.Range(b);
    const int64_t source = row + start + (position - row * size);
    return source >= range.first && source < range.last ? source : -1;
  }
};

template <typename T, int kVec>
struct ContextGradientOp {
  using Plan = WindowPositions;
  DeviceSplits splits;
  int64_t start;
  int64_t size;
  const T* gradient;
  int64_t dim;
  T* out;

  __device__ Plan MakePlan(int64_t row) const {
    const int64_t b = splits.Find(row);
    if (b < 0) return {0, 0};
    const SequenceRange range = splits.Range(b);
    return PositionsOfRow(row, range.first, range.last, start, size);
  }

  __device__ void Apply(const Plan& positions, int64_t row,
                        int64_t pack) const {
    const int64_t c = pack * kVec;
    ComputeOf<T> sums[kVec] = {};
    for (int64_t j = positions.first; j < positions.last; ++j) {
      const int64_t window = row - start - j;
      const auto part =
          LoadPack<kVec>(gradient + (window * size + j) * dim + c);
#pragma unroll
      for (int v = 0; v < kVec; ++v) sums[v] += ToCompute(part.at[v]);
    }
    Pack<T, kVec> result;
#pragma unroll
    for (int v = 0; v < kVec; ++v) result.at[v] = RoundTo<T>(sums[v]);
    StorePack(result, out + row * dim + c);
  }
};

}  // namespace

cudaError_t LaunchSequenceContext(cudaStream_t stream, const void* values,
                                  int64_t row_bytes, const DeviceSplits& splits,
                                  int64_t start, int64_t size,
                                  const void* pad_number, int64_t number_bytes,
                                  void* windows) {
  return LaunchCopyRows(stream, ContextMap{splits, start, size}, values,
                        splits.num_rows * size, row_bytes,
                        RowFill::Number(pad_number, number_bytes), windows);
}

cudaError_t LaunchSequenceContextGradient(cudaStream_t stream, Number number,
                                          const void* gradient, int64_t dim,
                                          const DeviceSplits& splits,
                                          int64_t start, int64_t size,
                                          void* values_gradient) {
  return VisitFloat(number, [&](auto zero) {
    using T = decltype(zero);
    return VisitPack<T>(
        dim,
        [&](auto width) {
          const ContextGradientOp<T, width()> op{
              splits, start,
              size,   static_cast<const T*>(gradient),
              dim,    static_cast<T*>(values_gradient)};
          return LaunchRows(stream, op, splits.num_rows, dim / width());
        },
        gradient, values_gradient);
  });
}

}  // namespace lodestar
