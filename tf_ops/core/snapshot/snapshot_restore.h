// A chain of snapshot files of one table (docs/snapshot.md) becomes an
// EmbeddingStore.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_RESTORE_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_RESTORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

struct RestoreOptions {
  // Optimizer slots in the files are left out; the next optimizer begins anew.
  bool reset_slots = false;
};

// The table that a whole file and the deltas that follow it, in order, lead to.
// Its shards, policies and kind of initializer are those of `like`, and so are
// the events that it has counted.
//
// DataLoss: a file is damaged, or holds an id twice. InvalidArgument: rows of
// another dim or type, another number of shared rows, admission of another
// kind, files in another order. FailedPrecondition: slots of another optimizer
// than that of `like`, if it has one, or more rows than its cap.
// ResourceExhausted: out of memory.
Status RestoreChain(Span<const std::string> files, const EmbeddingStore& like,
                    const RestoreOptions& options, const ParallelFor* parallel,
                    std::unique_ptr<EmbeddingStore>* out);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_RESTORE_H_
