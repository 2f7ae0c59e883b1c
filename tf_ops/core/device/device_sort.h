// Sorting and prefix sums in device memory.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_SORT_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_SORT_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"

namespace lodestar {

// Number of bits that represent all integers in [0, n).
inline int BitsFor(int64_t n) {
  int bits = 1;
  while ((int64_t{1} << bits) < n) ++bits;
  return bits;
}

// Returns InvalidArgument unless twice `count` can be indexed with 32 bits.
inline Status CheckBatchSize(const char* what, int64_t count) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (count <= kMost) return Status();
  return InvalidArgument("a batch on a GPU must have at most 2^30 ", what,
                         ", got ", count, ".");
}

// Stable sort of `count` pairs by the lowest `bits` bits of their keys. The
// results are in *keys and *values, which may be swapped with temporary arrays.
Status SortPairs(const DeviceStream& on, int64_t count, int bits,
                 DeviceArray<uint32_t>* keys, DeviceArray<uint32_t>* values);
Status SortPairs(const DeviceStream& on, int64_t count, int bits,
                 DeviceArray<uint64_t>* keys, DeviceArray<uint32_t>* values);

// sums[i] = numbers[0] + ... + numbers[i].
Status InclusiveSum(const DeviceStream& on, int64_t count,
                    const uint32_t* numbers, uint32_t* sums);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_SORT_H_
