// Gradients in device memory: summed by id, and checked.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_GRADIENT_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_GRADIENT_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// sums[u] = sum of gradients[i] over the i with positions[i] == u, in the order
// of i but for parts of 64 rows of frequent ids, so the same on every run.
// gradients: [N, D] of `type`; sums: [num_unique, D] of ComputeType(type).
// Positions outside [0, num_unique) have no part in it.
// InvalidArgument: more than 2^30 positions.
Status SumByPosition(const DeviceStream& on, RowType type,
                     const void* gradients, const int64_t* positions,
                     int64_t num_ids, int64_t num_unique, int64_t dim,
                     void* sums);

// What the ids of a slot get of the gradient with respect to its rows.
struct SlotGradient {
  const void* gradients = nullptr;  // [B, D], or without row_splits [N, D]
  int64_t num_ids = 0;
  const int64_t* row_splits = nullptr;  // [B + 1]; null: a row an id
  int64_t num_bags = 0;
  const float* weights = nullptr;  // [N]; null: all 1
  Combiner combiner = Combiner::kSum;
  const int64_t* winners = nullptr;  // of max: [B, D], as of DeviceStore::Pool
};

// SumByPosition of what the ids of all slots get, one slot after another, as
// BagFactors says. positions: of all these ids; negative for padding.
Status SumSlots(const DeviceStream& on, RowType type,
                const std::vector<SlotGradient>& slots,
                const int64_t* positions, int64_t num_unique, int64_t dim,
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

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_GRADIENT_H_
