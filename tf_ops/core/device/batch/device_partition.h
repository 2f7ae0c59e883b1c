// DevicePartition: IdParts for ids and rows in device memory.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_PARTITION_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_PARTITION_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"

namespace lodestar {

// Ids of a part keep the batch's order.
class DevicePartition {
 public:
  // Sets places[i] to the index of the row of ids[i] in the concatenation of
  // the rows of all parts. Waits. Returns InvalidArgument for more than 2^30
  // ids. Requires: num_parts >= 1.
  Status Init(const DeviceStream& on, Span<const int64_t> ids, int num_parts,
              int64_t* places);

  // Number of ids in a part.
  int64_t size(int part) const { return begins_[part + 1] - begins_[part]; }

  // Copies each row of `row_bytes` bytes (one per id) to its part's buffer.
  // Requires: row_bytes is even.
  Status SplitRows(const DeviceStream& on, const void* rows, int64_t row_bytes,
                   const std::vector<void*>& parts) const;

 private:
  DeviceArray<uint32_t> order_;  // indices of the ids, by part
  std::vector<int64_t> begins_;  // first place of each part, then the end
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_PARTITION_H_
