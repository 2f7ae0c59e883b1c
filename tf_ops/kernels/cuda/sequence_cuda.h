// The launchers of the GPU's kernels for sequences; includes no TensorFlow, so
// that any nvcc compiles the *.cu.cc files. All pointers are to device memory,
// unless said otherwise. Row splits there are not checked: an offset outside
// [0, num_rows] is read as the nearest one inside.

#ifndef LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/combiner.h"
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

// Copies the sequences of values, num_rows rows of row_bytes each (a multiple
// of 2), to padded [batch, maxlen] rows. The rest is filled with pad_row, one
// row in device memory, or if that is nullptr with a number of number_bytes
// (2, 4 or 8) at pad_number in host memory, read before the return.
cudaError_t LaunchSequencePad(cudaStream_t stream, const void* values,
                              int64_t num_rows, int64_t row_bytes,
                              const int64_t* row_splits, int64_t batch,
                              int64_t maxlen, const void* pad_row,
                              const void* pad_number, int64_t number_bytes,
                              void* padded);

// The inverse: `row_splits` are those of the num_rows rows of `values`.
cudaError_t LaunchSequenceUnpad(cudaStream_t stream, const void* padded,
                                int64_t batch, int64_t maxlen,
                                int64_t row_bytes, const int64_t* row_splits,
                                int64_t num_rows, void* values);

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

// Reverses the rows of `values`, of row_bytes each (a multiple of 2), inside
// each sequence of row_splits [batch + 1]. A row of no sequence, which bad
// splits can leave, stays.
cudaError_t LaunchSequenceReverse(cudaStream_t stream, const void* values,
                                  int64_t num_rows, int64_t row_bytes,
                                  const int64_t* row_splits, int64_t batch,
                                  void* reversed);

// The bytes of scratch memory that either launcher wants, aligned to 16.
int64_t SequenceSoftmaxScratchBytes(Number number, int64_t num_rows,
                                    int64_t batch, int64_t dim);

// The softmax of each column of values [num_rows, dim] inside each sequence of
// row_splits [batch + 1]. A row of no sequence, which bad splits can leave,
// gets zeros. `number` is a float type, here and below.
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

#endif  // LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_CUDA_H_
