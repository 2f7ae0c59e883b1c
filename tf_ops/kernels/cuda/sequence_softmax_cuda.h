// The launchers of the GPU's softmax of sequences; includes no TensorFlow. All
// pointers are to device memory; row splits there are not checked: an offset
// outside [0, num_rows] is read as the nearest one inside, and a row of no
// sequence, which bad splits can leave, gets zeros.

#ifndef LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_SOFTMAX_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_SOFTMAX_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/kernels/cuda/cuda_number.h"

namespace lodestar {

// The bytes of scratch memory that either launcher wants, aligned to 16.
int64_t SequenceSoftmaxScratchBytes(Number number, int64_t num_rows,
                                    int64_t batch, int64_t dim);

// The softmax of each column of values [num_rows, dim] inside each sequence of
// row_splits [batch + 1]. `number` is a float type, here and below.
cudaError_t LaunchSequenceSoftmax(cudaStream_t stream, Number number,
                                  const void* values, int64_t num_rows,
                                  int64_t dim, const int64_t* row_splits,
                                  int64_t batch, void* scratch,
                                  void* probabilities);

// The gradient of the values from that of the probabilities, all
// [num_rows, dim].
cudaError_t LaunchSequenceSoftmaxGradient(cudaStream_t stream, Number number,
                                          const void* probabilities,
                                          const void* gradient,
                                          int64_t num_rows, int64_t dim,
                                          const int64_t* row_splits,
                                          int64_t batch, void* scratch,
                                          void* values_gradient);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_SOFTMAX_CUDA_H_
