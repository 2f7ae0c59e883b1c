// The launcher of the GPU's reversal of sequences; includes no TensorFlow.

#ifndef LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_REVERSE_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_REVERSE_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace lodestar {

// Reverses the rows of `values`, of row_bytes each (a multiple of 2), inside
// each sequence of row_splits [batch + 1]; all in device memory. The splits are
// not checked: an offset outside [0, num_rows] is read as the nearest one
// inside, and a row of no sequence stays.
cudaError_t LaunchSequenceReverse(cudaStream_t stream, const void* values,
                                  int64_t num_rows, int64_t row_bytes,
                                  const int64_t* row_splits, int64_t batch,
                                  void* reversed);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_REVERSE_CUDA_H_
