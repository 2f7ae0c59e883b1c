#include "tf_ops/core/device/batch/device_csr.h"

#include <algorithm>

#include "tf_ops/core/device/batch/staging_buffer.h"

namespace lodestar {

void DeviceCsr::Reserve(const std::vector<Slot>& slots) {
  places_.resize(slots.size());
  int64_t num_ids = 0;
  int64_t num_offsets = 0;
  bool has_ids = false;
  bool weighted = false;
  bool padded = false;
  for (size_t s = 0; s < slots.size(); ++s) {
    const Slot& slot = slots[s];
    Place& place = places_[s];
    place.id = num_ids;
    place.weighted = !slot.weights.empty();
    place.has_bags = !slot.row_splits.empty();
    if (place.has_bags) {
      const bool follows = s > 0 && places_[s - 1].has_bags;
      if (follows) places_[s - 1].closes = false;
      place.closes = true;
      place.offset = num_offsets - (follows ? 1 : 0);
      num_offsets = place.offset + slot.row_splits.size();
    }
    num_ids += slot.ids.size();
    has_ids = has_ids || slot.ids.data() != nullptr;
    weighted = weighted || place.weighted;
    padded = padded || slot.padding_id != nullptr;
  }
  offsets_ = block_.Reserve<int64_t>(num_offsets);
  ids_ = block_.Reserve<int64_t>(has_ids ? num_ids : 0);
  weights_ = block_.Reserve<float>(weighted ? num_ids : 0);
  padded_ = block_.Reserve<bool>(padded ? num_ids : 0);
}

void DeviceCsr::Pack(const std::vector<Slot>& slots, char* to,
                     const ParallelFor* parallel) const {
  int64_t* const offsets = DeviceBlock::At(to, offsets_);
  int64_t* const ids = DeviceBlock::At(to, ids_);
  float* const weights = DeviceBlock::At(to, weights_);
  bool* const padded = DeviceBlock::At(to, padded_);
  const int64_t num_slots = static_cast<int64_t>(slots.size());
  RunParallel(parallel, num_slots,
              2 * ids_.size / std::max<int64_t>(1, num_slots) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t s = begin; s < end; ++s) {
                  const Slot& slot = slots[s];
                  const Place& place = places_[s];
                  const int64_t count = slot.ids.size();
                  if (slot.ids.data() != nullptr) {
                    std::copy_n(slot.ids.data(), count, ids + place.id);
                  }
                  if (place.weighted) {
                    std::copy_n(slot.weights.data(), count, weights + place.id);
                  }
                  const int64_t num_offsets =
                      slot.row_splits.size() - (place.closes ? 0 : 1);
                  for (int64_t b = 0; b < num_offsets; ++b) {
                    offsets[place.offset + b] = place.id + slot.row_splits[b];
                  }
                  for (int64_t i = 0; i < count && padded_.size > 0; ++i) {
                    padded[place.id + i] = slot.padding_id != nullptr &&
                                           slot.ids[i] == *slot.padding_id;
                  }
                }
              });
}

Status DeviceCsr::Send(const DeviceStream& on, const std::vector<Slot>& slots,
                       const ParallelFor* parallel) {
  constexpr const char* kFor = "a batch of ids";
  Reserve(slots);
  LODESTAR_RETURN_IF_ERROR(block_.Allocate(on.memory, kFor));
  if (block_.bytes() == 0) return Status();
  DeviceArray<char> staged;
  LODESTAR_RETURN_IF_ERROR(
      staged.Allocate(StagingBuffer::Of(on.stream), block_.bytes(), kFor));
  Pack(slots, staged.data(), parallel);
  return CudaStatus(
      cudaMemcpyAsync(block_.data(), staged.data(), block_.bytes(),
                      cudaMemcpyHostToDevice, on.stream),
      kFor);
}

}  // namespace lodestar
