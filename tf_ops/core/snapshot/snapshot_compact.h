// One whole file of a table in place of a whole file and the deltas after it.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_COMPACT_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_COMPACT_H_

#include <string>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {

// Writes the state that `files`, the snapshot files of one table, the oldest
// first, end in to a new file `out`, of the label `label`. The last of them
// that is whole and those behind it are read, the others not even opened.
// Memory: 16 bytes an id of the deltas, whatever the whole file holds; one file
// is open at a time.
//
// Rows of a file that was written before the table had an optimizer get the
// initial values of its slots.
//
// InvalidArgument: none of the files is whole, or two of them, which it names,
// are not of one table. DataLoss: a file is damaged; an id that stands twice in
// a delta is found too, one that stands twice in the whole file is not. Else
// what SnapshotFileReader and SnapshotFileWriter return. On error what was
// written of `out` stays, without END.
Status CompactChain(Span<const std::string> files, const std::string& out,
                    SnapshotFileSummary* summary,
                    const std::string& label = "");

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_COMPACT_H_
