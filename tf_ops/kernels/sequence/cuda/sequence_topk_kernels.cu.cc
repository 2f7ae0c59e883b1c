#include <cstdint>

#include "tf_ops/core/base/float16.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/sequence/sequence_topk.h"
#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/number.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"

namespace lodestar {
namespace {

// A value and its index, -1 for none.
template <typename Value>
struct Candidate {
  Value value;
  int64_t index;

  __device__ bool Precedes(const Candidate& other) const {
    return index >= 0 &&
           (other.index < 0 ||
            PrecedesInTopk(value, index, other.value, other.index));
  }
};

// A warp per row of a channel finds the k values one after another: each is the
// first one that the value before it precedes.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    Topk(const T* values, DeviceMatrices matrices, int64_t k, int64_t* index) {
  using Best = Candidate<ComputeOf<T>>;
  const int64_t warp = ThreadNumber() / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int64_t row = warp / matrices.channels;
  if (row >= matrices.rows.num_rows) return;
  const int64_t channel = warp - row * matrices.channels;
  const int64_t b = matrices.rows.Find(row);
  const SequenceRange rows = matrices.rows.Range(b);
  const SequenceRange columns = matrices.columns.Range(b);
  const int64_t width = columns.last - columns.first;
  const int64_t begin =
      matrices.values.Range(b).first +
      (channel * (rows.last - rows.first) + row - rows.first) * width;
  Best last{0, -1};
  for (int64_t i = 0; i < k; ++i) {
    Best best{0, -1};
    // A row of `width` values has no more.
    for (int64_t c = lane; i < width && c < width; c += kWarp) {
      const Best here{ToCompute(values[begin + c]), begin + c};
      if ((i == 0 || last.Precedes(here)) && here.Precedes(best)) best = here;
    }
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const Best other{__shfl_sync(kWholeWarp, best.value, lane ^ step),
                       __shfl_sync(kWholeWarp, best.index, lane ^ step)};
      if (other.Precedes(best)) best = other;
    }
    if (lane == 0) index[warp * k + i] = best.index;
    last = best;
  }
}

}  // namespace

cudaError_t LaunchSequenceTopk(cudaStream_t stream, Number number,
                               const void* values,
                               const DeviceMatrices& matrices, int64_t k,
                               int64_t* index) {
  return VisitFloat(number, [&](auto zero) {
    using T = decltype(zero);
    return Launch(Topk<T>, matrices.rows.num_rows * matrices.channels * kWarp,
                  stream, static_cast<const T*>(values), matrices, k, index);
  });
}

}  // namespace lodestar
