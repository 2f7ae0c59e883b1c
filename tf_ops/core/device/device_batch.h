// DeviceBatch: the distinct ids of a batch in device memory, and sums over
// them.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_BATCH_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_BATCH_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// Nothing of it waits for the device, but count().
class DeviceBatch {
 public:
  // Distinct ids come in the order of their first occurrences, as those of
  // BatchUnique; or of their last ones.
  enum class Which { kFirst, kLast };
  // `padding_id` is in host memory; positions of padding are -1.
  // InvalidArgument: more than 2^30 ids.
  Status Unique(const DeviceStream& on, const DeviceStore::Ids& ids,
                const int64_t* padding_id, Which which = Which::kFirst);

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

// sums[u] = sum of gradients[i] over the i with positions[i] == u, in the order
// of i but for parts of 64 rows of frequent ids, so the same on every run.
// gradients: [N, D] of `type`; sums: [num_unique, D] of ComputeType(type).
// Positions outside [0, num_unique) have no part in it.
// InvalidArgument: more than 2^30 positions.
Status SumByPosition(const DeviceStream& on, RowType type,
                     const void* gradients, const int64_t* positions,
                     int64_t num_ids, int64_t num_unique, int64_t dim,
                     void* sums);

// Which of `count` gradients [count, dim], of ComputeType(type), have a NaN or
// an infinity. `count` as of Ids.
class NonfiniteRows {
 public:
  Status Find(const DeviceStream& on, RowType type, const void* gradients,
              const DeviceStore::Ids& ids, int64_t dim);
  // Waits: how many there are, and the id of the first one.
  Status Count(const DeviceStream& on, int64_t* count, int64_t* first_id) const;
  // [count]
  const bool* flags() const { return flags_.data(); }

 private:
  DeviceStore::Ids ids_;
  DeviceArray<bool> flags_;
  DeviceArray<int64_t> result_;  // how many, and the first
};

// Rounds `count` numbers of ComputeType(type) to `type`, of 16 bits.
Status RoundNumbers(const DeviceStream& on, RowType type, const float* numbers,
                    int64_t count, void* rounded);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_BATCH_H_
