// DeviceRows: rows in device memory, in segments, so that a table grows without
// moving rows. docs/internals/kernels.md describes the layout. Each segment has
// these arrays:
//
//   values       [rows, value_stride bytes]
//   slots        [rows, slots_stride bytes], once there are slots: num_slots of
//                slot_stride bytes, then the version, if rows have one
//   meta         [rows]
//   free         [rows]: the stack of free rows, which spans all segments
//   marks        [rows], once a snapshot began

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_ROWS_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/pack.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/rows/admission_rule.h"

namespace lodestar {

constexpr int kMaxDeviceSlots = 4;

// Metadata of a row.
struct alignas(8) DeviceRowMeta {
  int64_t id;
  int64_t last_seen;
  uint32_t frequency;
  uint32_t live;  // 0: a free row
};
// Value of `live` for a row that must not be evicted.
constexpr uint32_t kMarkedRow = 2;

// Marks of a row for snapshots, in one word.
constexpr uint32_t kChangedRow = 1;  // since the base
constexpr uint32_t kTakenRow = 2;  // belongs to the running snapshot's changes
constexpr uint32_t kUnsavedRow = 4;  // the running snapshot still needs it

struct DeviceSegment {
  char* values = nullptr;
  char* slots = nullptr;
  DeviceRowMeta* meta = nullptr;
  uint32_t* free = nullptr;
  uint32_t* marks = nullptr;
};

struct DeviceRows {
  const DeviceSegment* segments = nullptr;  // in device memory
  int first_bits = 0;
  int last_bits = 0;
  int64_t value_stride = 0;
  int64_t slot_stride = 0;   // of one slot of a row
  int64_t slots_stride = 0;  // of all slots of a row
  int num_slots = 0;
  bool marking = false;  // new and changed rows are marked

  struct Place {
    int segment;
    uint32_t row;  // index within it
  };
  __host__ __device__ Place Locate(uint32_t row) const {
    const uint32_t high = row >> first_bits;
    if (high == 0) return {0, row};
    if ((row >> last_bits) == 0) {
#ifdef __CUDA_ARCH__
      const int bits = 32 - __clz(high);
#else
      const int bits = 32 - __builtin_clz(high);
#endif
      return {bits, row - (1u << (first_bits + bits - 1))};
    }
    return {last_bits - first_bits + static_cast<int>(row >> last_bits),
            row & ((1u << last_bits) - 1)};
  }
  // Number of rows of segment k.
  int64_t RowsOf(int k) const {
    if (k == 0) return int64_t{1} << first_bits;
    return int64_t{1} << (first_bits + k - 1 < last_bits ? first_bits + k - 1
                                                         : last_bits);
  }

  __device__ char* values(uint32_t row) const {
    const Place place = Locate(row);
    return segments[place.segment].values + place.row * value_stride;
  }
  __device__ char* slot(uint32_t row, int s) const {
    const Place place = Locate(row);
    return segments[place.segment].slots + place.row * slots_stride +
           s * slot_stride;
  }
  // Changes when the row is written or removed. Requires: the optimizer is
  // unfused.
  __device__ uint32_t* version(uint32_t row) const {
    return reinterpret_cast<uint32_t*>(slot(row, num_slots));
  }
  __device__ DeviceRowMeta* meta(uint32_t row) const {
    const Place place = Locate(row);
    return segments[place.segment].meta + place.row;
  }
  __device__ uint32_t* mark(uint32_t row) const {
    const Place place = Locate(row);
    return segments[place.segment].marks + place.row;
  }
  __device__ uint32_t* free(uint32_t position) const {
    const Place place = Locate(position);
    return segments[place.segment].free + place.row;
  }
};

// Initializes the optimizer slots of a new row.
struct SlotFill {
  int num_slots = 0;
  bool row_wise = false;  // one value per slot
  float inits[kMaxDeviceSlots] = {};

  // Filled by `lanes` threads, of which this is number `lane`, 16 bytes at a
  // time up to the end of the slot's memory, unless row_wise.
  __device__ void Fill(const DeviceRows& rows, uint32_t row, int lane,
                       int lanes) const {
    char* const first = rows.slot(row, 0);
    for (int s = lane; row_wise && s < num_slots; s += lanes) {
      reinterpret_cast<float*>(first)[s] = inits[s];
    }
    const int64_t packs = rows.slot_stride / 16;
    for (int s = 0; s < num_slots; ++s) {
      char* const slot = first + s * rows.slot_stride;
      for (int64_t p = lane; p < packs; p += lanes) {
        reinterpret_cast<Pack<float, 4>*>(slot)[p] = {
            {inits[s], inits[s], inits[s], inits[s]}};
      }
    }
  }
};

__device__ inline int64_t SizeOf(const DeviceStore::Ids& ids) {
  if (ids.count == nullptr) return ids.size;
  return *ids.count < ids.size ? *ids.count : ids.size;
}

// Whether a row was counted in step `now`.
__device__ inline bool IsCounted(const DeviceRowMeta& meta, int64_t now) {
  return meta.last_seen == now && meta.frequency != 0;
}

// Counts a row at most once per step.
__device__ inline void CountOccurrence(DeviceRowMeta* meta, int64_t now) {
  if (IsCounted(*meta, now)) return;
  meta->last_seen = now;
  meta->frequency = SaturatingAdd(meta->frequency, 1);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_ROWS_H_
