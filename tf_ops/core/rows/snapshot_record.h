// Records of a table's snapshot file (docs/internals/formats.md).

#ifndef LODESTAR_TF_OPS_CORE_ROWS_SNAPSHOT_RECORD_H_
#define LODESTAR_TF_OPS_CORE_ROWS_SNAPSHOT_RECORD_H_

#include <cstdint>

#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/slot_shape.h"

namespace lodestar {

// Head of a record of ROWS or SHARED_ROWS. The id of a shared row is its
// number.
struct SnapshotRowHead {
  int64_t id;
  int64_t last_seen;
  uint32_t frequency;
  uint32_t zero;
};
static_assert(sizeof(SnapshotRowHead) == 24);

// A record of PENDING.
struct SnapshotPending {
  int64_t id;
  int64_t last_seen;
  uint32_t occurrences;
  uint32_t zero;
};
static_assert(sizeof(SnapshotPending) == 24);

// Offsets of the parts of a row's record: SnapshotRowHead, values, optimizer
// slots. Each part is padded with zeros to 8 bytes.
class SnapshotRowLayout {
 public:
  SnapshotRowLayout(int dim, RowType type, const SlotShape& slots)
      : value_bytes_(dim * SizeOf(type)),
        slot_width_(slots.Width(dim)),
        slot_bytes_(slot_width_ * static_cast<int64_t>(sizeof(float))),
        slots_(slots.count) {}

  // Sizes without padding. Values have the table's type, slots are
  // floats.
  int64_t value_bytes() const { return value_bytes_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  // Number of values of a slot.
  int64_t slot_width() const { return slot_width_; }
  int64_t slots() const { return slots_; }

  // Offsets in a record.
  int64_t values() const { return sizeof(SnapshotRowHead); }
  int64_t slot(int64_t s) const {
    return values() + Padded(value_bytes_) + s * Padded(slot_bytes_);
  }
  // Size of a record.
  int64_t bytes() const { return slot(slots_); }

 private:
  static int64_t Padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

  int64_t value_bytes_;
  int64_t slot_width_;
  int64_t slot_bytes_;
  int64_t slots_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_SNAPSHOT_RECORD_H_
