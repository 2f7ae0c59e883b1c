// Launchers of the GPU kernels for sequences. Does not include TensorFlow, so
// any nvcc compiles the *.cu.cc files. Pointers are to device memory unless
// stated otherwise. Row splits in device memory are not checked: an offset
// outside [0, num_rows] is clamped.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/kernels/sequence/cuda/number.h"

namespace lodestar {

// Sequence b is rows [row_splits[b], row_splits[b + 1]) of num_rows, and its
// copies fill rows [starts[b], starts[b + 1]) of expanded_rows.
struct DeviceExpansion {
  const int64_t* row_splits;  // [batch + 1]
  const int64_t* starts;      // [batch + 1]
  int64_t batch;
  int64_t num_rows;
  int64_t expanded_rows;
};

// Requires: row_bytes is a multiple of 2.
cudaError_t LaunchSequenceExpand(cudaStream_t stream, const void* values,
                                 int64_t row_bytes,
                                 const DeviceExpansion& expansion,
                                 void* expanded);

// Size of the scratch memory for LaunchSequenceExpandGradient, aligned to 16.
int64_t SequenceExpandGradientScratchBytes(Number number, int64_t expanded_rows,
                                           int64_t dim);

// The gradient [num_rows, dim] of the values, summed over the copies. `number`
// must be a float type.
cudaError_t LaunchSequenceExpandGradient(cudaStream_t stream, Number number,
                                         const void* gradient, int64_t dim,
                                         const DeviceExpansion& expansion,
                                         void* scratch, void* values_gradient);

// Copies row b of `values` to rows [row_splits[b], row_splits[b + 1]).
cudaError_t LaunchSequenceExpandAs(cudaStream_t stream, const void* values,
                                   int64_t row_bytes, const int64_t* row_splits,
                                   int64_t batch, int64_t expanded_rows,
                                   void* expanded);

// Copies the sequences of `values` (num_rows rows of row_bytes each, a multiple
// of 2) to `padded`, [batch, maxlen] rows. Padding is filled with pad_row, one
// row in device memory, or if that is nullptr with a number of number_bytes (2,
// 4 or 8) at pad_number in host memory, which is read before the call returns.
cudaError_t LaunchSequencePad(cudaStream_t stream, const void* values,
                              int64_t num_rows, int64_t row_bytes,
                              const int64_t* row_splits, int64_t batch,
                              int64_t maxlen, const void* pad_row,
                              const void* pad_number, int64_t number_bytes,
                              void* padded);

// The inverse. `row_splits` belong to the num_rows rows of `values`.
cudaError_t LaunchSequenceUnpad(cudaStream_t stream, const void* padded,
                                int64_t batch, int64_t maxlen,
                                int64_t row_bytes, const int64_t* row_splits,
                                int64_t num_rows, void* values);

// Size of the scratch memory for LaunchSequencePool, aligned to 16.
int64_t SequencePoolScratchBytes(Combiner combiner, Number number,
                                 int64_t num_rows, int64_t dim);

// Pools values [num_rows, dim] by row_splits [batch + 1] into pooled [batch,
// dim], and for max also into winners [batch, dim]. `pad_value` is in host
// memory and read before the call returns.
cudaError_t LaunchSequencePool(cudaStream_t stream, Combiner combiner,
                               Number number, const void* values,
                               int64_t num_rows, int64_t dim,
                               const int64_t* row_splits, int64_t batch,
                               const void* pad_value, void* scratch,
                               void* pooled, int64_t* winners);

// Computes the gradient [num_rows, dim] of the values from the gradient of the
// pooled rows [batch, dim] and, for max, the winners [batch, dim]. Winners
// outside their sequence are ignored. With invalid splits, a row without a
// sequence gets zeros. `number` must be a float type.
cudaError_t LaunchSequencePoolGradient(cudaStream_t stream, Combiner combiner,
                                       Number number, const void* gradient,
                                       int64_t dim, const int64_t* row_splits,
                                       int64_t batch, const int64_t* winners,
                                       int64_t num_rows, void* values_gradient);

// Reverses the rows of `values` (row_bytes each, a multiple of 2) within each
// sequence of row_splits [batch + 1]. With invalid splits, a row without a
// sequence stays in place.
cudaError_t LaunchSequenceReverse(cudaStream_t stream, const void* values,
                                  int64_t num_rows, int64_t row_bytes,
                                  const int64_t* row_splits, int64_t batch,
                                  void* reversed);

// Size of the scratch memory for either launcher, aligned to 16.
int64_t SequenceSoftmaxScratchBytes(Number number, int64_t num_rows,
                                    int64_t batch, int64_t dim);

// Computes the softmax of each column of values [num_rows, dim] within each
// sequence of row_splits [batch + 1]. With invalid splits, a row without a
// sequence gets zeros. `number` must be a float type, here and below.
cudaError_t LaunchSequenceSoftmax(cudaStream_t stream, Number number,
                                  const void* values, int64_t num_rows,
                                  int64_t dim, const int64_t* row_splits,
                                  int64_t batch, void* scratch,
                                  void* probabilities);

// Computes the gradient of the values from the gradient of the probabilities;
// all are [num_rows, dim].
cudaError_t LaunchSequenceSoftmaxGradient(cudaStream_t stream, Number number,
                                          const void* probabilities,
                                          const void* gradient,
                                          int64_t num_rows, int64_t dim,
                                          const int64_t* row_splits,
                                          int64_t batch, void* scratch,
                                          void* values_gradient);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_CUDA_H_
