// Row splits in device memory, for the *.cu.cc files of this folder.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_DEVICE_SPLITS_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_DEVICE_SPLITS_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace lodestar {

// Rows [first, last) of a sequence.
struct SequenceRange {
  int64_t first;
  int64_t last;
};

// Unchecked row splits in device memory. An offset outside [0, num_rows] is
// clamped to that range, so no row outside is ever accessed, and a sequence
// whose end is before its start is empty.
struct DeviceSplits {
  const int64_t* offsets;  // [batch + 1]
  int64_t batch;
  int64_t num_rows;

  __device__ int64_t Offset(int64_t i) const {
    const int64_t offset = offsets[i];
    return offset < 0 ? 0 : (offset > num_rows ? num_rows : offset);
  }

  __device__ SequenceRange Range(int64_t b) const {
    const int64_t first = Offset(b);
    const int64_t last = Offset(b + 1);
    return {first, last > first ? last : first};
  }

  // Returns the sequence that contains `row`. With invalid splits, returns any
  // such sequence, or -1.
  __device__ int64_t Find(int64_t row) const {
    int64_t low = 0;  // sequences before it start at or before `row`
    int64_t high = batch;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (Offset(middle) <= row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const int64_t b = low - 1;
    return b >= 0 && row < Offset(b + 1) && Offset(b) <= row ? b : -1;
  }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_DEVICE_SPLITS_H_
