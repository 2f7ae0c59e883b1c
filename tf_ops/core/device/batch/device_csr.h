// DeviceCsr: sends a batch of features to a device in compressed sparse row
// format: ids ("values"), the start of each bag among them ("row offsets"),
// weights and padding.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_CSR_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_CSR_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"

namespace lodestar {

// Several arrays in one allocation, copied to the device and freed together.
// Call Reserve for each piece, then Allocate once; at(piece) is its address.
class DeviceBlock {
 public:
  // `size` elements of T at byte `offset` of the block.
  template <typename T>
  struct Piece {
    int64_t offset = 0;
    int64_t size = 0;
  };

  // Aligns the piece to one sector of GPU memory.
  template <typename T>
  Piece<T> Reserve(int64_t size) {
    constexpr int64_t kAlignment = 32;
    const Piece<T> piece = {bytes_, size};
    const int64_t end = bytes_ + size * static_cast<int64_t>(sizeof(T));
    bytes_ = (end + kAlignment - 1) / kAlignment * kAlignment;
    return piece;
  }

  // Allocates all reserved pieces. `allocator` must outlive the block. Returns
  // ResourceExhausted if out of memory.
  Status Allocate(DeviceAllocator* allocator, const char* what) {
    return memory_.Allocate(allocator, bytes_, what);
  }

  // Total size of all pieces, rounded up.
  int64_t bytes() const { return bytes_; }
  char* data() const { return memory_.data(); }
  template <typename T>
  T* at(const Piece<T>& piece) const {
    return At(memory_.data(), piece);
  }
  // Address of a piece in a copy of the block.
  template <typename T>
  static T* At(char* memory, const Piece<T>& piece) {
    return reinterpret_cast<T*>(memory + piece.offset);
  }

 private:
  int64_t bytes_ = 0;
  DeviceArray<char> memory_;
};

class DeviceCsr {
 public:
  struct Slot {
    Span<const int64_t> ids;         // null data: only their number is used
    Span<const int64_t> row_splits;  // empty: one row per id
    Span<const float> weights;       // [N]; empty: all 1
    const int64_t* padding_id = nullptr;
  };

  DeviceCsr() = default;
  DeviceCsr(const DeviceCsr&) = delete;

  // Copies all slots into one block; their arrays may be freed afterwards. The
  // block holds row offsets (slots x batch + 1 if all slots have bags), ids
  // slot by slot, and weights and padding if any slot has them. Call once.
  // Returns ResourceExhausted if out of memory. Requires: row_splits satisfy
  // CheckBags.
  Status Send(const DeviceStream& on, const std::vector<Slot>& slots,
              const ParallelFor* parallel);

  // Arrays of slot s, readable by kernels. Absent arrays are null.
  const int64_t* ids(int s) const { return block_.at(ids_) + places_[s].id; }
  const bool* padded(int s) const {
    return padded_.size == 0 ? nullptr : block_.at(padded_) + places_[s].id;
  }
  const float* weights(int s) const {
    return places_[s].weighted ? block_.at(weights_) + places_[s].id : nullptr;
  }
  // [B + 1], indexes into the ids of all slots.
  const int64_t* row_offsets(int s) const {
    return places_[s].has_bags ? block_.at(offsets_) + places_[s].offset
                               : nullptr;
  }

 private:
  struct Place {
    int64_t id = 0;      // index of its first id
    int64_t offset = 0;  // index of its first offset
    bool has_bags = false;
    bool weighted = false;
    bool closes = false;  // no slot after it begins where it ends
  };

  void Reserve(const std::vector<Slot>& slots);
  void Pack(const std::vector<Slot>& slots, char* to,
            const ParallelFor* parallel) const;

  std::vector<Place> places_;  // by slot
  DeviceBlock::Piece<int64_t> offsets_;
  DeviceBlock::Piece<int64_t> ids_;
  DeviceBlock::Piece<float> weights_;
  DeviceBlock::Piece<bool> padded_;
  DeviceBlock block_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_CSR_H_
