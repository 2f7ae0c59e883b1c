#include <cstdint>

#include "tf_ops/core/base/pack.h"
#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/number.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda/sequence_reduce_cuda.h"
#include "tf_ops/kernels/sequence/cuda/sequence_rows_cuda.h"

namespace lodestar {
namespace {

struct ExpandMap {
  DeviceExpansion splits;

  __device__ int64_t Source(int64_t row) const {
    const int64_t b = splits.repeats.Find(row);
    if (b < 0) return -1;
    const SequenceRange range = splits.rows.Range(b);
    const int64_t length = range.last - range.first;
    if (length == 0) return -1;
    return range.first + (row - splits.repeats.Range(b).first) % length;
  }
};

struct ExpandAsMap {
  DeviceSplits splits;

  __device__ int64_t Source(int64_t row) const { return splits.Find(row); }
};

// Here a sequence is the list of copies of one input row. The copies of a row
// are one sequence length apart in the output; numbering the copies of each row
// consecutively permutes the expanded rows.
template <typename T>
struct ExpandGradientReducer {
  using Acc = ComputeOf<T>;
  struct Range {
    int64_t first;  // number of the first copy
    int64_t last;
    int64_t begin;  // expanded row of the first copy
    int64_t step;   // from copy to copy
  };
  DeviceExpansion splits;
  const T* gradient;
  int64_t dim;
  T* out;

  __device__ Range RangeOf(int64_t row) const {
    const int64_t b = splits.rows.Find(row);
    if (b < 0) return {0, 0, 0, 0};
    const SequenceRange range = splits.rows.Range(b);
    const SequenceRange copies = splits.repeats.Range(b);
    const int64_t step = range.last - range.first;
    const int64_t repeats = (copies.last - copies.first) / step;
    const int64_t offset = row - range.first;
    const int64_t first = copies.first + offset * repeats;
    return {first, first + repeats, copies.first + offset, step};
  }

  __device__ int64_t Find(int64_t copy) const {
    const int64_t b = splits.repeats.Find(copy);
    if (b < 0) return -1;
    const SequenceRange range = splits.rows.Range(b);
    const SequenceRange copies = splits.repeats.Range(b);
    const int64_t step = range.last - range.first;
    if (step == 0 || copies.last - copies.first < step) return -1;
    return range.first +
           (copy - copies.first) / ((copies.last - copies.first) / step);
  }

  __device__ static Acc None() { return static_cast<Acc>(-0.0); }

  template <int kVec>
  __device__ void Add(const Range& range, int64_t copy, int64_t c,
                      Acc (&sums)[kVec]) const {
    const int64_t row = range.begin + (copy - range.first) * range.step;
    const auto pack = LoadPack<kVec>(gradient + row * dim + c);
#pragma unroll
    for (int v = 0; v < kVec; ++v) sums[v] += ToCompute(pack.at[v]);
  }

  __device__ static void Merge(Acc* a, const Acc& b) { *a += b; }

  template <int kVec>
  __device__ void Finish(int64_t row, int64_t c, const Range& range,
                         const Acc (&sums)[kVec]) const {
    Pack<T, kVec> result;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      result.at[v] = RoundTo<T>(range.first < range.last ? sums[v] : Acc(0));
    }
    StorePack(result, out + row * dim + c);
  }
};

}  // namespace

cudaError_t LaunchSequenceExpand(cudaStream_t stream, const void* values,
                                 int64_t row_bytes,
                                 const DeviceExpansion& expansion,
                                 void* expanded) {
  return LaunchCopyRows(stream, ExpandMap{expansion}, values,
                        expansion.repeats.num_rows, row_bytes, RowFill(),
                        expanded);
}

int64_t SequenceExpandGradientScratchBytes(Number number, int64_t expanded_rows,
                                           int64_t dim) {
  return VisitFloat(number, [&](auto zero) {
    return ReduceScratchBytes<ExpandGradientReducer<decltype(zero)>>(
        expanded_rows, dim);
  });
}

cudaError_t LaunchSequenceExpandGradient(cudaStream_t stream, Number number,
                                         const void* gradient, int64_t dim,
                                         const DeviceExpansion& expansion,
                                         void* scratch, void* values_gradient) {
  return VisitFloat(number, [&](auto zero) {
    using T = decltype(zero);
    const ExpandGradientReducer<T> reducer{expansion,
                                           static_cast<const T*>(gradient), dim,
                                           static_cast<T*>(values_gradient)};
    return VisitPack<T>(
        dim,
        [&](auto width) {
          return LaunchReduce<width()>(stream, reducer,
                                       expansion.repeats.num_rows,
                                       expansion.rows.num_rows, dim, scratch);
        },
        reducer.gradient, reducer.out);
  });
}

cudaError_t LaunchSequenceExpandAs(cudaStream_t stream, const void* values,
                                   int64_t row_bytes,
                                   const DeviceSplits& splits, void* expanded) {
  return LaunchCopyRows(stream, ExpandAsMap{splits}, values, splits.num_rows,
                        row_bytes, RowFill(), expanded);
}

}  // namespace lodestar
