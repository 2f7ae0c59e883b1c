// Launchers of the GPU kernels for sequences. Does not include TensorFlow, so
// any nvcc compiles the *.cu.cc files. Pointers are to device memory unless
// stated otherwise.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/number.h"

namespace lodestar {

// Runs of consecutive rows, which are the sequences of `rows`, and the row of
// another tensor that the first row of each run corresponds to. Kernels do not
// check `places`.
struct DeviceRuns {
  DeviceSplits rows;
  const int64_t* places;  // [rows.batch]
};

// Copies the rows of `values` (row_bytes each) that the rows of `gathered`
// correspond to.
cudaError_t LaunchGatherRuns(cudaStream_t stream, const void* values,
                             int64_t row_bytes, const DeviceRuns& runs,
                             void* gathered);

// Copies the rows of `values` to the rows of `scattered` that they correspond
// to. Other rows stay as they are.
cudaError_t LaunchScatterRuns(cudaStream_t stream, const void* values,
                              int64_t row_bytes, const DeviceRuns& runs,
                              void* scattered);

// Sets windows [num_rows, size] to the rows of `values` (row_bytes each) from
// `start` on, relative to each row, that are in its sequence. Other rows are
// filled with the number of number_bytes (2, 4 or 8) at pad_number in host
// memory, which is read before the call returns.
cudaError_t LaunchSequenceContext(cudaStream_t stream, const void* values,
                                  int64_t row_bytes, const DeviceSplits& splits,
                                  int64_t start, int64_t size,
                                  const void* pad_number, int64_t number_bytes,
                                  void* windows);

// Computes the gradient [num_rows, dim] of the values from the gradient of the
// windows [num_rows, size, dim], with the CPU's order of sums. With invalid
// splits, a row without a sequence gets zeros. `number` must be a float type.
cudaError_t LaunchSequenceContextGradient(cudaStream_t stream, Number number,
                                          const void* gradient, int64_t dim,
                                          const DeviceSplits& splits,
                                          int64_t start, int64_t size,
                                          void* values_gradient);

// The copies of sequence b of `rows` are sequence b of `repeats`, over the
// expanded rows.
struct DeviceExpansion {
  DeviceSplits rows;
  DeviceSplits repeats;
};

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

// Copies row b of `values` to the rows of sequence b.
cudaError_t LaunchSequenceExpandAs(cudaStream_t stream, const void* values,
                                   int64_t row_bytes,
                                   const DeviceSplits& splits, void* expanded);

// Copies the sequences of `values` (rows of row_bytes) to `padded`, [batch,
// maxlen] rows. Padding is filled with pad_row, one row in device memory, or if
// that is nullptr with a number of number_bytes (1, 2, 4 or 8) at pad_number in
// host memory, which is read before the call returns.
cudaError_t LaunchSequencePad(cudaStream_t stream, const void* values,
                              int64_t row_bytes, const DeviceSplits& splits,
                              int64_t maxlen, const void* pad_row,
                              const void* pad_number, int64_t number_bytes,
                              void* padded);

// The inverse.
cudaError_t LaunchSequenceUnpad(cudaStream_t stream, const void* padded,
                                int64_t maxlen, int64_t row_bytes,
                                const DeviceSplits& splits, void* values);

// Size of the scratch memory for LaunchSequencePool, aligned to 16.
int64_t SequencePoolScratchBytes(Combiner combiner, Number number,
                                 int64_t num_rows, int64_t dim);

// Pools values [num_rows, dim] into pooled [batch, dim], and for max also into
// winners [batch, dim]. `pad_value` is in host memory and read before the call
// returns.
cudaError_t LaunchSequencePool(cudaStream_t stream, Combiner combiner,
                               Number number, const void* values, int64_t dim,
                               const DeviceSplits& splits,
                               const void* pad_value, void* scratch,
                               void* pooled, int64_t* winners);

// Computes the gradient [num_rows, dim] of the values from the gradient of the
// pooled rows [batch, dim] and, for max, the winners [batch, dim]. Winners
// outside their sequence are ignored. With invalid splits, a row without a
// sequence gets zeros. `number` must be a float type.
cudaError_t LaunchSequencePoolGradient(cudaStream_t stream, Combiner combiner,
                                       Number number, const void* gradient,
                                       int64_t dim, const DeviceSplits& splits,
                                       const int64_t* winners,
                                       void* values_gradient);

// Size of the scratch memory for either launcher, aligned to 16.
int64_t SequenceSoftmaxScratchBytes(Number number, int64_t dim,
                                    const DeviceSplits& splits);

// Computes the softmax of each column of values [num_rows, dim] within each
// sequence. With invalid splits, a row without a sequence gets zeros. `number`
// must be a float type, here and below.
cudaError_t LaunchSequenceSoftmax(cudaStream_t stream, Number number,
                                  const void* values, int64_t dim,
                                  const DeviceSplits& splits, void* scratch,
                                  void* probabilities);

// Computes the gradient of the values from the gradient of the probabilities;
// all are [num_rows, dim].
cudaError_t LaunchSequenceSoftmaxGradient(cudaStream_t stream, Number number,
                                          const void* probabilities,
                                          const void* gradient, int64_t dim,
                                          const DeviceSplits& splits,
                                          void* scratch, void* values_gradient);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_CUDA_H_
