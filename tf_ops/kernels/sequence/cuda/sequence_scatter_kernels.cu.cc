#include <cstdint>

#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/sequence/sequence_scatter.h"
#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"

namespace lodestar {
namespace {

__global__ void __launch_bounds__(kBlock)
    ScatterPlaces(const int64_t* index, DeviceSplits splits, int64_t width,
                  int64_t* places, int32_t* wrong) {
  const int64_t p = ThreadNumber();
  if (p >= splits.num_rows) return;
  const int64_t b = splits.Find(p);
  const int64_t place = b < 0 ? -1 : ScatterPlace(b, index[p], width);
  places[p] = place;
  if (place < 0) *wrong = 1;
}

}  // namespace

cudaError_t LaunchSequenceScatterPlaces(cudaStream_t stream,
                                        const int64_t* index,
                                        const DeviceSplits& splits,
                                        int64_t width, int64_t* places,
                                        int32_t* wrong) {
  const cudaError_t error = cudaMemsetAsync(wrong, 0, sizeof(*wrong), stream);
  if (error != cudaSuccess) return error;
  return Launch(ScatterPlaces, splits.num_rows, stream, index, splits, width,
                places, wrong);
}

}  // namespace lodestar
