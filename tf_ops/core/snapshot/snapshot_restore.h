// The snapshot files of one table (docs/snapshot.md), or those ids of it that
// lie on one task, become an EmbeddingStore.

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

namespace lodestar {

struct RestoreOptions {
  // Optimizer slots in the files are left out; the next optimizer begins anew.
  bool reset_slots = false;
};

// The files that a part of a table was saved to: a whole one and the deltas
// that follow it, in order.
struct SavedPart {
  TablePart part;
  std::vector<std::string> files;
};

// The table that the files of its parts lead to, or those ids of it that are of
// `part`; files of parts that have none of those are not read. Shards, policies
// and kind of initializer are those of `like`, and so are the events that it
// has counted.
//
// What parts have each for itself becomes one: the latest step is the step, and
// of the counters of a sketch the larger ones stay. Where `part` is one of
// several, whose sizes differ by chance, rows above its cap are evicted.
//
// DataLoss: a file is damaged, holds an id twice, or one of another part.
// InvalidArgument: rows of another dim or type, another number of shared rows,
// admission of another kind, files in another order, parts of different tables.
// FailedPrecondition: slots of another optimizer
// than that of `like`, if it has one, or more rows than its cap.
// ResourceExhausted: out of memory.
Status RestoreTable(Span<const SavedPart> saved, const TablePart& part,
                    const EmbeddingStore& like, const RestoreOptions& options,
                    const ParallelFor* parallel,
                    std::unique_ptr<EmbeddingStore>* out);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_RESTORE_H_
