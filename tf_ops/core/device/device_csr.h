// DeviceCsr: a batch of slots in compressed sparse rows, on its way to a
// device: ids ("values"), where each bag begins among them ("row offsets"), and
// what else is known of each id.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_CSR_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_CSR_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_block.h"
#include "tf_ops/core/device/device_memory.h"

namespace lodestar {

// Where a batch lies while kernels read it.
enum class BatchMemory {
  kDevice,   // on the device: one copy, through pinned memory
  kPinned,   // page-locked on the host: kernels read it over the bus
  kManaged,  // CUDA moves its pages
};

// InvalidArgument: not "device", "pinned" or "managed".
Status ParseBatchMemory(const char* name, BatchMemory* memory);

class DeviceCsr {
 public:
  struct Slot {
    Span<const int64_t> ids;         // no data: only how many
    Span<const int64_t> row_splits;  // empty: a row for each id
    Span<const float> weights;       // [N]; empty: all 1
    const int64_t* padding_id = nullptr;
  };

  DeviceCsr() = default;
  DeviceCsr(const DeviceCsr&) = delete;

  // Puts all slots into one block; what they point to is free once it returns.
  // Pieces: row offsets, slots x batch + 1 where all slots have bags; ids, slot
  // after slot; weights and padding if any slot has them.
  // ResourceExhausted: out of memory; FailedPrecondition: a second batch.
  // REQUIRES: row_splits as CheckBags wants them.
  Status Send(const DeviceStream& on, BatchMemory memory,
              const std::vector<Slot>& slots, const ParallelFor* parallel);

  // Of slot s, in memory that kernels read. What there is none of is null.
  const int64_t* ids(int s) const { return block_.at(ids_) + places_[s].id; }
  const bool* padded(int s) const {
    return padded_.size == 0 ? nullptr : block_.at(padded_) + places_[s].id;
  }
  const float* weights(int s) const {
    return places_[s].weighted ? block_.at(weights_) + places_[s].id : nullptr;
  }
  // [B + 1], counted in the ids of all slots.
  const int64_t* row_offsets(int s) const {
    return places_[s].has_bags ? block_.at(offsets_) + places_[s].offset
                               : nullptr;
  }
  // Of the block.
  int64_t bytes() const { return block_.bytes(); }

 private:
  struct Place {
    int64_t id = 0;      // its first one
    int64_t offset = 0;  // likewise
    bool has_bags = false;
    bool weighted = false;
    bool closes = false;  // no slot behind it begins where it ends
  };

  Status Reserve(const std::vector<Slot>& slots);
  void Pack(const std::vector<Slot>& slots, char* to,
            const ParallelFor* parallel) const;

  std::vector<Place> places_;  // by slot
  int64_t num_ids_ = 0;
  DeviceBlock::Piece<int64_t> offsets_;
  DeviceBlock::Piece<int64_t> ids_;
  DeviceBlock::Piece<float> weights_;
  DeviceBlock::Piece<bool> padded_;
  DeviceBlock block_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_CSR_H_
