// DeviceBatch: the distinct ids of a batch in device memory.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_BATCH_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_BATCH_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/device_store.h"

namespace lodestar {

// Nothing of it waits for the device, but count().
class DeviceBatch {
 public:
  // Distinct ids come in the order of their first occurrences, as those of
  // BatchUnique; or of their last ones.
  enum class Which { kFirst, kLast };
  // Padding is *padding_id, which is in host memory, and where `padded`, [N],
  // says so; either may be null. Its positions are -1.
  // InvalidArgument: more than 2^30 ids.
  Status Unique(const DeviceStream& on, const DeviceStore::Ids& ids,
                const int64_t* padding_id, Which which = Which::kFirst,
                const bool* padded = nullptr);

  // Once Unique is queued.
  DeviceStore::Ids ids() const {
    return {unique_.data(), unique_.size(), count_.data()};
  }
  // Of each distinct id where it occurs, first or last.
  const int64_t* occurrences() const { return occurrences_.data(); }
  const int64_t* positions() const { return positions_.data(); }
  // Waits: how many distinct ids there are, and, if it is not null, how many
  // that are padding.
  Status Count(const DeviceStream& on, int64_t* count,
               int64_t* padding = nullptr) const;

 private:
  DeviceArray<int64_t> unique_;       // [N], of which *count_ are filled
  DeviceArray<int64_t> occurrences_;  // likewise
  DeviceArray<int64_t> positions_;    // [N]
  DeviceArray<int64_t> count_;        // of distinct ids, of padding
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_BATCH_H_
