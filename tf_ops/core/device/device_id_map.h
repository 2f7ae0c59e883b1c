// DeviceIdMap: what an id table of integer keys holds, in the memory of one
// GPU. It is made once, of distinct keys, and then only read.

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

// Any thread may call at any time, on any stream of the device, once Create has
// returned. Pointers are to device memory unless said otherwise.
class DeviceIdMap {
 public:
  // Waits. `keys`, which are distinct, and `values` are in host memory, and are
  // as many.
  // ResourceExhausted: out of memory. `allocator` outlives the map.
  static Status Create(Span<const int64_t> keys, Span<const int64_t> values,
                       DeviceAllocator* allocator, const DeviceStream& on,
                       std::unique_ptr<DeviceIdMap>* out);

  int64_t size() const { return values_.size(); }
  int64_t bytes() const;

  // values[i]: that of keys[i], or `missing`.
  Status Find(const DeviceStream& on, const int64_t* keys, int64_t count,
              int64_t missing, int64_t* values) const;
  // Keys that are not there get the value first + hash(key) % num_buckets.
  // REQUIRES: num_buckets > 0.
  Status FindOrHash(const DeviceStream& on, const int64_t* keys, int64_t count,
                    const DecimalHash& hash, uint64_t num_buckets,
                    int64_t first, int64_t* values) const;

 private:
  DeviceIdMap() = default;
  DeviceIndex index() const;

  DeviceArray<uint32_t> tags_;
  DeviceArray<IndexEntry> entries_;  // key -> its place in values_
  DeviceArray<int64_t> values_;
};

// Keys of another integer type as DeviceIdMap takes them.
// K: int8 to int32, uint8 to uint32.
template <typename K>
Status WidenKeys(const DeviceStream& on, const K* keys, int64_t count,
                 int64_t* widened);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_ID_MAP_H_
