// DeviceBatch: deduplicates the ids of a batch in device memory.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_BATCH_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_BATCH_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/device_store.h"

namespace lodestar {

// Only Count waits for the device.
class DeviceBatch {
 public:
  // Unique ids are ordered by their first occurrence in the batch, as in
  // BatchUnique, or by their last.
  enum class Which { kFirst, kLast };
  // An id is padding if it equals *padding_id (in host memory) or if `padded`
  // ([N]) is set; either may be null. Positions of padding are -1. Returns
  // InvalidArgument for more than 2^30 ids.
  Status Unique(const DeviceStream& on, const DeviceStore::Ids& ids,
                const int64_t* padding_id, Which which = Which::kFirst,
                const bool* padded = nullptr);

  // The unique ids. Valid once Unique is queued.
  DeviceStore::Ids ids() const {
    return {unique_.data(), unique_.size(), count_.data()};
  }
  // The index of the first or last occurrence of each unique id.
  const int64_t* occurrences() const { return occurrences_.data(); }
  const int64_t* positions() const { return positions_.data(); }
  // Copies the first `count` unique ids, and the positions.
  Status Copy(const DeviceStream& on, int64_t count, int64_t* unique_ids,
              int64_t* positions) const;
  // Counts how often each of the `count` unique ids occurs.
  Status CountOccurrences(const DeviceStream& on, int64_t count,
                          DeviceArray<uint32_t>* occurrences) const;
  // Gets the number of unique ids and, if `padding` is not null, the number of
  // padding ids. Waits for the device.
  Status Count(const DeviceStream& on, int64_t* count,
               int64_t* padding = nullptr) const;

 private:
  DeviceArray<int64_t> unique_;       // [N], of which *count_ are set
  DeviceArray<int64_t> occurrences_;  // [N], of which *count_ are set
  DeviceArray<int64_t> positions_;    // [N]
  DeviceArray<int64_t> count_;        // unique ids, padding
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_BATCH_H_
