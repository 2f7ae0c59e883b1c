// Restoring of a table, or of the ids of one of its parts, from snapshot files
// (docs/internals/formats.md).

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_RESTORE_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_RESTORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/snapshot/restored_records.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

struct RestoreOptions {
  // Ignores the optimizer slots in the files.
  bool reset_slots = false;
};

// The files of one saved part of a table: a full one and the incremental ones
// that follow it, in order.
struct SavedPart {
  TablePart part;
  std::vector<ListedFile> files;
};

// Returns the table that replaces `like` and results from the files of its
// parts, restricted to the ids of `part`. Does not read files of parts without
// such ids. Shards, policies and the kind of initializer are from `like`.
//
// Per-part state is merged: the step is the latest one, and sketch counters are
// merged by maximum. If `part` is one of several, whose sizes vary randomly,
// rows above its cap are evicted.
//
// Returns DataLoss if a file is damaged, repeats an id, or has an id of another
// part. Returns InvalidArgument if the dimension, the type, the number of
// shared rows, the kind of admission or the order of the files does not match,
// or parts belong to different tables. Returns FailedPrecondition if the slots
// belong to another optimizer than the slots of `like`, or there are more
// rows than its cap. Returns ResourceExhausted if out of memory.
Status RestoreTable(Span<const SavedPart> saved, const TablePart& part,
                    const EmbeddingStore& like, const RestoreOptions& options,
                    const ParallelFor* parallel,
                    std::unique_ptr<EmbeddingStore>* out);
// The same for a table of any kind. Rows of a table on a GPU are read into host
// memory by `parallel` first.
Status RestoreTable(Span<const SavedPart> saved, const TablePart& part,
                    const Table& like, const RestoreOptions& options,
                    const ParallelFor* parallel, const Execution& on,
                    std::unique_ptr<Table>* out);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_RESTORE_H_
