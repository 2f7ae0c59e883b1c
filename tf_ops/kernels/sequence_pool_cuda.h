// The launcher of the GPU's sequence pooling; includes no TensorFlow, so that
// any nvcc compiles sequence_pool_kernels.cu.cc.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_POOL_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_POOL_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/combiner.h"

namespace lodestar {

// Pools values [num_rows, dim] by row_splits [batch + 1] into pooled
// [batch, dim], and for max into index [batch, dim]; all in device memory.
// An offset outside [0, num_rows] is read as the nearest one inside.
cudaError_t LaunchSequencePool(cudaStream_t stream, Combiner combiner,
                               const float* values, int64_t num_rows,
                               int64_t dim, const int64_t* row_splits,
                               int64_t batch, float pad_value, float* pooled,
                               int64_t* index);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_POOL_CUDA_H_
