// RowStore: the rows of one shard, in segments that never move.
//
//   segment (1024 rows)   metadata  [ id | last seen | sequence | frequency
//   ]...
//                         values    [ D floats ]...
//                         slot s    [ D floats ]...   once an optimizer came
//
// Segments hang in blocks of 1, 2, 4, ... of them, so a row's address is two
// loads away for ever and growth copies nothing.
//
// The sequence word guards a row: bit 0 is held by a writer, bit 1 says that
// the row is resident, the other bits count writes. A reader copies between
// two equal even words; it never waits for a lock of a table. Values are
// written with atomic stores; optimizer slots are touched only by who holds
// bit 0.

#ifndef LODESTAR_TF_OPS_CORE_ROW_STORE_H_
#define LODESTAR_TF_OPS_CORE_ROW_STORE_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "tf_ops/core/arena.h"
#include "tf_ops/core/span.h"
#include "tf_ops/core/status.h"

namespace lodestar {

struct RowMeta {
  std::atomic<int64_t> id;
  std::atomic<int64_t> last_seen;
  std::atomic<uint32_t> sequence;
  std::atomic<uint32_t> frequency;
};

// Reads and writes of row data that another thread may be doing the opposite
// to; the sequence word tells whether the copy holds together.
void CopyRowOut(const float* row, int dim, float* out);
void CopyRowIn(const float* in, int dim, float* row);

class RowStore {
 public:
  static constexpr int kMaxSlots = 4;
  static constexpr int kSegmentRows = 1024;

  RowStore(int dim, Arena* arena) : dim_(dim), arena_(arena) {}
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  RowMeta* meta(uint32_t row) const {
    return segment(row).meta + row % kSegmentRows;
  }
  float* values(uint32_t row) const {
    return segment(row).values +
           static_cast<int64_t>(row % kSegmentRows) * dim_;
  }
  // REQUIRES: AttachSlots was called for it at some time.
  float* slot(uint32_t row, int s) const {
    return segment(row).slots[s].load(std::memory_order_acquire) +
           static_cast<int64_t>(row % kSegmentRows) * dim_;
  }

  // Any thread.

  // Copies the row if it holds `id` now; false: it does not.
  bool Read(uint32_t row, int64_t id, float* out) const;

  // Waits for the row's word and holds it; false (and not held): the row does
  // not hold `id`.
  bool Lock(uint32_t row, int64_t id) const;
  void Unlock(uint32_t row) const { Release(meta(row), kResident); }

  // One thread at a time (the shard's mutex).

  // Room for `count` more Allocate calls. ResourceExhausted: out of memory.
  Status Reserve(int64_t count);
  // Segments for `rows` rows in all.
  Status ReserveCapacity(int64_t rows);
  // Room for `count` Free calls.
  Status ReserveFree(int64_t count);
  // A row that no reader takes for resident until Publish.
  uint32_t Allocate();
  // The row now holds `id`; its data are written.
  void Publish(uint32_t row, int64_t id, int64_t last_seen,
               uint32_t frequency) const;
  // From here on no reader takes it for resident; the index forgets it next.
  void Free(uint32_t row);
  // Frees all rows; their memory is kept for the next ones.
  void FreeAll();

  // Memory for `count` optimizer slots beside every row there is and will be.
  // ResourceExhausted: out of memory, and the slots that there were stay.
  Status ReserveSlots(int64_t count);
  // From here on rows have these slots; existing rows hold the inits.
  // REQUIRES: as many are reserved.
  void AttachSlots(Span<const float> inits);
  int num_slots() const { return num_slots_; }

  // Rows [0, high_water) have been given out at least once.
  uint32_t high_water() const { return high_water_; }
  bool resident(uint32_t row) const {
    return (meta(row)->sequence.load(std::memory_order_acquire) & kResident) !=
           0;
  }
  int64_t capacity() const { return segments_ * int64_t{kSegmentRows}; }
  int64_t row_bytes() const {
    return capacity() * (sizeof(RowMeta) + dim_ * sizeof(float));
  }
  int64_t slot_bytes() const {
    return capacity() * slot_arrays_ * dim_ * sizeof(float);
  }

 private:
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kResident = 2;
  static constexpr uint32_t kWrite = 4;
  static constexpr int kBlocks = 22;  // row numbers fit LeafIndex

  struct Segment {
    RowMeta* meta;
    float* values;
    std::atomic<float*> slots[kMaxSlots];
  };

  Segment& segment(uint32_t row) const {
    const uint32_t number = row / kSegmentRows + 1;
    const int block = 31 - __builtin_clz(number);
    return blocks_[block].load(
        std::memory_order_acquire)[number ^ (1u << block)];
  }
  static uint32_t Hold(RowMeta* meta);
  static void Release(RowMeta* meta, uint32_t resident);
  bool AddSegment();
  bool AddSlotArrays(Segment* segment, int count);

  const int dim_;
  Arena* const arena_;
  std::atomic<Segment*> blocks_[kBlocks] = {};
  int64_t segments_ = 0;
  uint32_t high_water_ = 0;
  std::vector<uint32_t> free_;
  int slot_arrays_ = 0;  // that every segment has; never fewer again
  int used_slots_ = 0;   // that an optimizer ever had
  int num_slots_ = 0;    // that the optimizer has
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROW_STORE_H_
