// Compaction of a full snapshot file and its incremental ones into one full
// file.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_COMPACT_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_COMPACT_H_

#include <string>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {

// Writes the state at the end of `files`, the snapshot files of one table,
// oldest first, to a new file `out` with the label `label`. Reads the last full
// file and the files after it; earlier ones are not opened. Uses at
// most 48 bytes of memory per id of the incremental files, regardless of the
// full file, and opens one file at a time.
//
// Rows of a file that was written before the table had an optimizer get the
// initial values of its slots.
//
// Returns InvalidArgument if none of the files is full, or if two of them
// belong to different tables. Returns DataLoss if a file is damaged or not as
// listed. This
// includes repeated ids in an incremental file, but not in the full file.
// Otherwise returns errors of SnapshotFileReader and SnapshotFileWriter. On
// error `out` is left without END.
Status CompactChain(Span<const ListedFile> files, const std::string& out,
                    const std::string& label, SnapshotFileSummary* summary);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_COMPACT_H_
