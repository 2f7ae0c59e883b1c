// DeviceIdMap: the content of an integer id table in the memory of one GPU.
// Immutable after creation.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_ID_MAP_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_ID_MAP_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/lookup/decimal_hash.h"

namespace lodestar {

struct DeviceIndex;
struct IndexEntry;

// Thread-safe, on any stream of the device, once Create has returned. Pointers
// are to device memory unless stated otherwise.
class DeviceIdMap {
 public:
  // Creates a map from unique `keys` and as many `values`, both in host memory.
  // Waits. `allocator` must outlive the map. Returns ResourceExhausted if out
  // of memory.
  static Status Create(Span<const int64_t> keys, Span<const int64_t> values,
                       DeviceAllocator* allocator, const DeviceStream& on,
                       std::unique_ptr<DeviceIdMap>* out);

  int64_t size() const { return values_.size(); }
  int64_t bytes() const;

  // Sets values[i] to the value of keys[i], or to `missing`.
  Status Find(const DeviceStream& on, const int64_t* keys, int64_t count,
              int64_t missing, int64_t* values) const;
  // Missing keys get the value first + hash(key) % num_buckets. Requires:
  // num_buckets > 0.
  Status FindOrHash(const DeviceStream& on, const int64_t* keys, int64_t count,
                    const DecimalHash& hash, uint64_t num_buckets,
                    int64_t first, int64_t* values) const;

 private:
  DeviceIdMap() = default;
  DeviceIndex index() const;

  DeviceArray<uint32_t> tags_;
  DeviceArray<IndexEntry> entries_;  // key -> index in values_
  DeviceArray<int64_t> values_;
};

// Converts keys of another integer type to int64. K: int8 to int32, uint8 to
// uint32.
template <typename K>
Status WidenKeys(const DeviceStream& on, const K* keys, int64_t count,
                 int64_t* widened);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_ID_MAP_H_
