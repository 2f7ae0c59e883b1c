// The launchers of the GPU's sequence pooling; includes no TensorFlow, so that
// any nvcc compiles sequence_pool_kernels.cu.cc. All pointers are to device
// memory; row splits there are not checked: an offset outside [0, num_rows] is
// read as the nearest one inside.

#ifndef LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_POOL_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_POOL_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/kernels/cuda/cuda_number.h"

namespace lodestar {

// The bytes of scratch memory that LaunchSequencePool wants, aligned to 16.
int64_t SequencePoolScratchBytes(Combiner combiner, Number number,
                                 int64_t num_rows, int64_t dim);

// Pools values [num_rows, dim] by row_splits [batch + 1] into pooled
// [batch, dim], and for max into winners [batch, dim]. `pad_value` is a number
// in host memory, read before the return.
cudaError_t LaunchSequencePool(cudaStream_t stream, Combiner combiner,
                               Number number, const void* values,
                               int64_t num_rows, int64_t dim,
                               const int64_t* row_splits, int64_t batch,
                               const void* pad_value, void* scratch,
                               void* pooled, int64_t* winners);

// The gradient [num_rows, dim] of the values from that of the pooled rows
// [batch, dim] and for max the winners [batch, dim]. A winner outside its
// sequence takes no part; a row of no sequence, which bad splits can leave,
// gets zeros. `number` is a float type.
cudaError_t LaunchSequencePoolGradient(cudaStream_t stream, Combiner combiner,
                                       Number number, const void* gradient,
                                       int64_t dim, const int64_t* row_splits,
                                       int64_t batch, const int64_t* winners,
                                       int64_t num_rows, void* values_gradient);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_POOL_CUDA_H_
