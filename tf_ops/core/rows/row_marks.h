// Per-row marks and the record format that snapshots need.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ROW_MARKS_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ROW_MARKS_H_

#include <atomic>
#include <cstdint>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/rows/snapshot_record.h"

namespace lodestar {

// One bit per row, in words of 64 rows. Changing a bit requires the row lock or
// the shard's mutex.
enum class RowMark {
  // Written since the base snapshot of the next incremental one.
  kChanged,
  // Part of the running snapshot and not saved yet, neither by the snapshot nor
  // as an image: the row is unchanged since the snapshot began.
  kUnsaved,
  // Was changed when the snapshot began; marked changed again if it fails.
  kTaken,
};
constexpr int kRowMarks = 3;
typedef std::atomic<uint64_t> MarkWord;
constexpr uint32_t kMarkedRows = 64;

// How a row is written as a snapshot record.
struct SnapshotRowFormat {
  SnapshotRowLayout layout;
  // One initial value per slot. Rows have the first `stored` slots; the others
  // are filled.
  Span<const float> slot_inits;
  int stored = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ROW_MARKS_H_
