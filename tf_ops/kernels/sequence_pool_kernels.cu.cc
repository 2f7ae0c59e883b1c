#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "tf_ops/kernels/sequence_pool_cuda.h"

namespace lodestar {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 65535;

__device__ int64_t Clamp(int64_t offset, int64_t num_rows) {
  return offset < 0 ? 0 : (offset > num_rows ? num_rows : offset);
}

// A thread owns one (sequence, column) of the output and walks the rows of its
// sequence; neighbouring threads own neighbouring columns, so each row is read
// in whole lines. The grid strides over all B x D of them.
__global__ void SequencePoolKernel(Combiner combiner, const float* values,
                                   int64_t num_rows, int64_t dim,
                                   const int64_t* row_splits, int64_t batch,
                                   float pad_value, float* pooled,
                                   int64_t* index) {
  const int64_t total = batch * dim;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < total; i += stride) {
    const int64_t b = i / dim;
    const int64_t c = i % dim;
    const int64_t first = Clamp(row_splits[b], num_rows);
    const int64_t last = Clamp(row_splits[b + 1], num_rows);
    float result = pad_value;
    int64_t winner = -1;
    if (first < last) {
      if (combiner == Combiner::kLast) {
        result = values[(last - 1) * dim + c];
      } else {
        result = values[first * dim + c];
        winner = first;
        if (combiner == Combiner::kMax) {
          for (int64_t r = first + 1; r < last; ++r) {
            const float x = values[r * dim + c];
            if (x > result) {
              result = x;
              winner = r;
            }
          }
        } else if (combiner != Combiner::kFirst) {
          for (int64_t r = first + 1; r < last; ++r) {
            result += values[r * dim + c];
          }
          if (combiner == Combiner::kMean) {
            result /= static_cast<float>(last - first);
          } else if (combiner == Combiner::kSqrtn) {
            result /=
                static_cast<float>(sqrt(static_cast<double>(last - first)));
          }
        }
      }
    }
    pooled[i] = result;
    if (combiner == Combiner::kMax) index[i] = winner;
  }
}

}  // namespace

cudaError_t LaunchSequencePool(cudaStream_t stream, Combiner combiner,
                               const float* values, int64_t num_rows,
                               int64_t dim, const int64_t* row_splits,
                               int64_t batch, float pad_value, float* pooled,
                               int64_t* index) {
  const int64_t total = batch * dim;
  if (total == 0) return cudaSuccess;
  const int64_t blocks =
      std::min((total + kThreads - 1) / kThreads, kMaxBlocks);
  SequencePoolKernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      combiner, values, num_rows, dim, row_splits, batch, pad_value, pooled,
      index);
  return cudaGetLastError();
}

}  // namespace lodestar
