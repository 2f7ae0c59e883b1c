// What a snapshot needs to know of rows: marks, a bit a row, and how a row is
// written into one.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ROW_MARKS_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ROW_MARKS_H_

#include <atomic>
#include <cstdint>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/rows/snapshot_record.h"

namespace lodestar {

// Each is a bit a row, in words of 64 rows. Bits are changed by who holds the
// row's word or the shard's mutex.
enum class RowMark {
  // Written since the snapshot that the next delta follows.
  kChanged,
  // In the running snapshot, which neither the snapshot nor an image has yet:
  // still as it was at the flip.
  kUnsaved,
  // Changed at the flip; if the snapshot fails, it is so again.
  kTaken,
};
constexpr int kRowMarks = 3;
typedef std::atomic<uint64_t> MarkWord;
constexpr uint32_t kMarkedRows = 64;

// How a row becomes a record of a snapshot.
struct SnapshotRowFormat {
  SnapshotRowLayout layout;
  // A slot each. Rows have the first `stored` of them; the others are filled.
  Span<const float> slot_inits;
  int stored = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ROW_MARKS_H_
