// Sorting and counting in device memory.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_SORT_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_SORT_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"

namespace lodestar {

// What tells numbers in [0, n) apart.
inline int BitsFor(int64_t n) {
  int bits = 1;
  while ((int64_t{1} << bits) < n) ++bits;
  return bits;
}

// InvalidArgument: a batch that 32 bits do not number, and twice as many.
inline Status CheckBatchSize(const char* what, int64_t count) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (count <= kMost) return Status();
  return InvalidArgument("a batch on a GPU has at most 2^30 ", what, ", found ",
                         count);
}

// Sorts `count` pairs by the lowest `bits` bits of their keys, equal ones in
// the order that they had. The results are in *keys and *values, which may have
// been exchanged with memory of this call.
Status SortPairs(const DeviceStream& on, int64_t count, int bits,
                 DeviceArray<uint32_t>* keys, DeviceArray<uint32_t>* values);
Status SortPairs(const DeviceStream& on, int64_t count, int bits,
                 DeviceArray<uint64_t>* keys, DeviceArray<uint32_t>* values);

// sums[i] = numbers[0] + ... + numbers[i].
Status InclusiveSum(const DeviceStream& on, int64_t count,
                    const uint32_t* numbers, uint32_t* sums);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_SORT_H_
