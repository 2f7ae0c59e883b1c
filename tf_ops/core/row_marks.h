// What a snapshot needs to know of rows: marks, a bit a row, and how a row is
// written into one.

#ifndef LODESTAR_TF_OPS_CORE_ROW_MARKS_H_
#define LODESTAR_TF_OPS_CORE_ROW_MARKS_H_

#include <atomic>
#include <cstdint>

#include "tf_ops/core/snapshot_record.h"
#include "tf_ops/core/span.h"

namespace lodestar {

// Of 64 rows. Bits are set by who holds the row's word or the shard's mutex.
struct RowMarks {
  // Written since the snapshot that the next delta follows.
  std::atomic<uint64_t> changed;
  // In the running snapshot, which neither the snapshot nor an image has yet:
  // still as they were at its flip.
  std::atomic<uint64_t> unsaved;
  // Those that were changed at its flip; if it fails, they are so again.
  std::atomic<uint64_t> taken;
};

// How a row becomes a record of a snapshot.
struct SnapshotRowFormat {
  SnapshotRowLayout layout;
  // A slot each. Rows have the first `stored` of them; the others are filled.
  Span<const float> slot_inits;
  int stored = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROW_MARKS_H_
