// Host memory as a stopover between snapshot files and a table on a GPU.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_HOST_TABLE_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_HOST_TABLE_H_

#include <memory>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

// Creates a table in host memory with the options and the state of `table`, but
// without its rows: it accepts what `table` accepts. Returns ResourceExhausted
// if out of memory.
Status MakeHostTable(const Table& table, const Execution& on,
                     std::unique_ptr<EmbeddingStore>* out);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_HOST_TABLE_H_
