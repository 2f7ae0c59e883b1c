// The launchers of the GPU's padding of sequences; includes no TensorFlow. All
// pointers are to device memory. The splits there are those that the host has
// checked; even so no offset leads out of the values.

#ifndef LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_PAD_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_PAD_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace lodestar {

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

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_PAD_CUDA_H_
