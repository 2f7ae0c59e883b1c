#include <cstdint>

#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda/sequence_rows_cuda.h"

namespace lodestar {
namespace {

struct PadMap {
  DeviceSplits splits;
  int64_t maxlen;

  __device__ int64_t Source(int64_t row) const {
    const int64_t b = row / maxlen;
    const SequenceRange range = splits.Range(b);
    const int64_t source = range.first + (row - b * maxlen);
    return source < range.last ? source : -1;
  }
};

struct UnpadMap {
  DeviceSplits splits;
  int64_t maxlen;

  __device__ int64_t Source(int64_t row) const {
    const int64_t b = splits.Find(row);
    if (b < 0) return -1;
    const int64_t step = row - splits.Range(b).first;
    return step < maxlen ? b * maxlen + step : -1;
  }
};

}  // namespace

cudaError_t LaunchSequencePad(cudaStream_t stream, const void* values,
                              int64_t row_bytes, const DeviceSplits& splits,
                              int64_t maxlen, const void* pad_row,
                              const void* pad_number, int64_t number_bytes,
                              void* padded) {
  RowFill fill;
  if (pad_row != nullptr) {
    fill.row = pad_row;
  } else {
    fill = RowFill::Number(pad_number, number_bytes);
  }
  return LaunchCopyRows(stream, PadMap{splits, maxlen}, values,
                        splits.batch * maxlen, row_bytes, fill, padded);
}

cudaError_t LaunchSequenceUnpad(cudaStream_t stream, const void* padded,
                                int64_t maxlen, int64_t row_bytes,
                                const DeviceSplits& splits, void* values) {
  return LaunchCopyRows(stream, UnpadMap{splits, maxlen}, padded,
                        splits.num_rows, row_bytes, RowFill(), values);
}

}  // namespace lodestar
