#include <cstdint>

#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda/sequence_rows_cuda.h"

namespace lodestar {
namespace {

struct RunMap {
  DeviceRuns runs;

  __device__ int64_t Source(int64_t row) const { return Place(row); }
  __device__ int64_t Place(int64_t row) const {
    const int64_t b = runs.rows.Find(row);
    return b < 0 ? -1 : runs.places[b] + row - runs.rows.Range(b).first;
  }
};

}  // namespace

cudaError_t LaunchGatherRuns(cudaStream_t stream, const void* values,
                             int64_t row_bytes, const DeviceRuns& runs,
                             void* gathered) {
  return LaunchCopyRows(stream, RunMap{runs}, values, runs.rows.num_rows,
                        row_bytes, RowFill(), gathered);
}

cudaError_t LaunchScatterRuns(cudaStream_t stream, const void* values,
                              int64_t row_bytes, const DeviceRuns& runs,
                              void* scattered) {
  return LaunchCopyRows<CopyTo::kPlace>(stream, RunMap{runs}, values,
                                        runs.rows.num_rows, row_bytes,
                                        RowFill(), scattered);
}

}  // namespace lodestar
