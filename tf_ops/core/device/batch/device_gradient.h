// Gradients in device memory: sums by id, and checks for non-finite values.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_GRADIENT_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_GRADIENT_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// sums[u] = sum of gradients[i] over all i with positions[i] == u. Adds in the
// order of i, except that frequent ids are summed in parts of 64 rows, so every
// run has the same bits. gradients: [N, D] of `type`; sums: [num_unique, D] of
// float. Positions outside [0, num_unique) are ignored. Returns
// InvalidArgument for more than 2^30 positions.
Status SumByPosition(const DeviceStream& on, RowType type,
                     const void* gradients, const int64_t* positions,
                     int64_t num_ids, int64_t num_unique, int64_t dim,
                     void* sums);

// The gradient with respect to the rows of one slot.
struct SlotGradient {
  const void* gradients = nullptr;  // [B, D]; without row_splits [N, D]
  int64_t num_ids = 0;
  const int64_t* row_splits = nullptr;  // [B + 1]; null: one row per id
  int64_t num_bags = 0;
  const float* weights = nullptr;  // [N]; null: all 1
  Combiner combiner = Combiner::kSum;
  const int64_t* winners = nullptr;  // for max: [B, D], see DeviceStore::Pool
};

// SumByPosition of the per-id gradients (see BagFactors) of all slots, one slot
// after another. positions: of all these ids; negative for padding.
Status SumSlots(const DeviceStream& on, RowType type,
                const std::vector<SlotGradient>& slots,
                const int64_t* positions, int64_t num_unique, int64_t dim,
                void* sums);

// Finds float gradients [count, dim] that contain NaN or
// infinity. `count`: see Ids.
class NonfiniteRows {
 public:
  // exempt: [count], ids that are not checked; null: none. Also finds numbers
  // with an absolute value beyond `limit`.
  Status Find(const DeviceStream& on, const void* gradients,
              const DeviceStore::Ids& ids, int64_t dim,
              const bool* exempt = nullptr,
              float limit = std::numeric_limits<float>::max());
  // Gets their number and the id of the first one. Waits.
  Status Count(const DeviceStream& on, int64_t* count, int64_t* first_id) const;
  // [count]
  bool* flags() const { return flags_.data(); }

 private:
  DeviceStore::Ids ids_;
  DeviceArray<bool> flags_;
  DeviceArray<int64_t> result_;  // the number and the index of the first
};

// Rounds `count` floats to `type`, which has 16 bits.
Status RoundNumbers(const DeviceStream& on, RowType type, const float* numbers,
                    int64_t count, void* rounded);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_GRADIENT_H_
