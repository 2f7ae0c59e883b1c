// Each tile of kBlock ids counts the ids that it keeps; the sum over the tiles
// before it gives the place of each.

#include <cstdint>

#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/number.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda/sequence_rows_cuda.h"

namespace lodestar {
namespace {

// The kept ids, counted.
struct KeptIds {
  int64_t* before;  // [tiles], in earlier tiles
  int32_t* counts;  // [num_rows], from the beginning of the tile to this id

  // Requires: scratch memory of SequenceEraseScratchBytes.
  KeptIds(void* scratch, int64_t num_rows)
      : before(static_cast<int64_t*>(scratch)),
        counts(
            reinterpret_cast<int32_t*>(before + DivideUp(num_rows, kBlock))) {}

  // The number of ids [0, i) that are kept.
  __device__ int64_t Before(int64_t i) const {
    return i == 0 ? 0 : before[(i - 1) / kBlock] + counts[i - 1];
  }

  __device__ int64_t Place(int64_t i) const {
    const int32_t last = i % kBlock == 0 ? 0 : counts[i - 1];
    return counts[i] == last ? -1 : before[i / kBlock] + last;
  }
};

// Returns the sum of `value` over the threads of the block up to this one. All
// threads of the block must call this. `sums` holds kBlock sums, the results.
__device__ int64_t SumUpToThread(int64_t value, int64_t* sums) {
  const int thread = threadIdx.x;
  __syncthreads();  // previous reads of `sums` are done
  sums[thread] = value;
  __syncthreads();
  for (int step = 1; step < kBlock; step *= 2) {
    const int64_t other = thread >= step ? sums[thread - step] : 0;
    __syncthreads();
    sums[thread] += other;
    __syncthreads();
  }
  return sums[thread];
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    CountKept(const T* ids, int64_t num_rows, const T* tokens,
              int64_t num_tokens, KeptIds kept) {
  __shared__ int64_t sums[kBlock];
  const int64_t i = ThreadNumber();
  bool keeps = false;
  if (i < num_rows) {
    const T id = ids[i];
    int64_t low = 0;  // tokens before it are less than the id
    int64_t high = num_tokens;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (tokens[middle] < id) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    keeps = low == num_tokens || tokens[low] != id;
  }
  const int64_t count = SumUpToThread(keeps, sums);
  if (i < num_rows) kept.counts[i] = static_cast<int32_t>(count);
  if (threadIdx.x == kBlock - 1) kept.before[blockIdx.x] = count;
}

// Replaces the count of each tile by the sum of those before it, in one block.
__global__ void __launch_bounds__(kBlock)
    SumTiles(int64_t tiles, KeptIds kept) {
  __shared__ int64_t sums[kBlock];
  int64_t before = 0;
  for (int64_t first = 0; first < tiles; first += kBlock) {
    const int64_t tile = first + threadIdx.x;
    const int64_t count = tile < tiles ? kept.before[tile] : 0;
    const int64_t sum = SumUpToThread(count, sums);
    if (tile < tiles) kept.before[tile] = before + sum - count;
    before += sums[kBlock - 1];
  }
}

__global__ void __launch_bounds__(kBlock)
    SplitKept(DeviceSplits splits, KeptIds kept, int64_t* kept_splits) {
  const int64_t b = ThreadNumber();
  if (b <= splits.batch) kept_splits[b] = kept.Before(splits.Offset(b));
}

}  // namespace

int64_t SequenceEraseScratchBytes(int64_t num_rows) {
  return DivideUp(num_rows, kBlock) * static_cast<int64_t>(sizeof(int64_t)) +
         num_rows * static_cast<int64_t>(sizeof(int32_t));
}

cudaError_t LaunchSequenceEraseSplits(cudaStream_t stream, Number number,
                                      const void* ids,
                                      const DeviceSplits& splits,
                                      const void* tokens, int64_t num_tokens,
                                      void* scratch, int64_t* kept_splits) {
  const int64_t num_rows = splits.num_rows;
  const KeptIds kept(scratch, num_rows);
  cudaError_t error = VisitInteger(number, [&](auto zero) {
    using T = decltype(zero);
    return Launch(CountKept<T>, num_rows, stream, static_cast<const T*>(ids),
                  num_rows, static_cast<const T*>(tokens), num_tokens, kept);
  });
  if (error != cudaSuccess) return error;
  error = LaunchGrid(SumTiles, 1, stream, DivideUp(num_rows, kBlock), kept);
  if (error != cudaSuccess) return error;
  return Launch(SplitKept, splits.batch + 1, stream, splits, kept, kept_splits);
}

cudaError_t LaunchSequenceErase(cudaStream_t stream, Number number,
                                const void* ids, int64_t num_rows,
                                void* scratch, void* kept) {
  return LaunchCopyRows<CopyTo::kPlace>(stream, KeptIds(scratch, num_rows), ids,
                                        num_rows, SizeOf(number), RowFill(),
                                        kept);
}

}  // namespace lodestar
