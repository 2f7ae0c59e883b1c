// The launchers of the GPU's expansion of sequences; includes no TensorFlow.
// All pointers are to device memory. The splits there are those that the host
// has checked; even so no offset leads out of the rows.

#ifndef LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_EXPAND_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_EXPAND_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/kernels/cuda/cuda_number.h"

namespace lodestar {

// Sequence b, rows [row_splits[b], row_splits[b + 1]) of num_rows, is repeated
// as often as rows [starts[b], starts[b + 1]) of expanded_rows hold it.
struct DeviceExpansion {
  const int64_t* row_splits;  // [batch + 1]
  const int64_t* starts;      // [batch + 1]
  int64_t batch;
  int64_t num_rows;
  int64_t expanded_rows;
};

// A row has row_bytes, a multiple of 2.
cudaError_t LaunchSequenceExpand(cudaStream_t stream, const void* values,
                                 int64_t row_bytes,
                                 const DeviceExpansion& expansion,
                                 void* expanded);

// The bytes of scratch memory that LaunchSequenceExpandGradient wants, aligned
// to 16.
int64_t SequenceExpandGradientScratchBytes(Number number, int64_t expanded_rows,
                                           int64_t dim);

// The gradient [num_rows, dim] of the values: sums over the repeats.
// `number` is a float type.
cudaError_t LaunchSequenceExpandGradient(cudaStream_t stream, Number number,
                                         const void* gradient, int64_t dim,
                                         const DeviceExpansion& expansion,
                                         void* scratch, void* values_gradient);

// Row b of `values` goes to rows [row_splits[b], row_splits[b + 1]).
cudaError_t LaunchSequenceExpandAs(cudaStream_t stream, const void* values,
                                   int64_t row_bytes, const int64_t* row_splits,
                                   int64_t batch, int64_t expanded_rows,
                                   void* expanded);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_EXPAND_CUDA_H_
