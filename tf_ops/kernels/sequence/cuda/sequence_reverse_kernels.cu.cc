#include <cstdint>

#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda/sequence_rows_cuda.h"

namespace lodestar {
namespace {

struct ReverseMap {
  DeviceSplits splits;

  __device__ int64_t Source(int64_t row) const {
    const int64_t b = splits.Find(row);
    if (b < 0) return row;
    const SequenceRange range = splits.Range(b);
    return range.first + (range.last - 1 - row);
  }
};

}  // namespace

cudaError_t LaunchSequenceReverse(cudaStream_t stream, const void* values,
                                  int64_t row_bytes, const DeviceSplits& splits,
                                  void* reversed) {
  return LaunchCopyRows(stream, ReverseMap{splits}, values, splits.num_rows,
                        row_bytes, RowFill(), reversed);
}

}  // namespace lodestar
