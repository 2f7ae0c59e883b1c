// The parts of a table. EmbeddingStore implements the operations on them.
// Snapshots see them through a SnapshotSource, restores through RowsApplier.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_

#include <cstdint>
#include <memory>

#include "tf_ops/core/embedding/occurrence_counter.h"
#include "tf_ops/core/embedding/optimizer_binding.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/embedding/shared_rows.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/table_policies.h"
#include "tf_ops/core/table/snapshot_source.h"
#include "tf_ops/core/table/table_events.h"
#include "tf_ops/core/table/table_step.h"

namespace lodestar {

struct TableParts {
  TableParts(int dim, int num_shards, const RowInitializer& initializer,
             const TablePolicies& policies, RowType type)
      : policies(policies),
        initializer(initializer),
        rows(dim, type, num_shards, policies),
        optimizer(&rows),
        occurrence_counter(policies, &rows, &step),
        shared(policies.shared_rows, initializer, &rows, &optimizer) {}

  // Initializes a row that is not visible yet. Requires: rows.CheckTrains().
  void FillNewRow(int64_t id, const RowRef& ref) {
    RowStore& store = rows.shard(ref.shard).rows;
    rows.DrawInto(initializer, id, &store, ref.row);
    optimizer.FillSlots(&store, ref.row);
  }

  const TablePolicies policies;
  const RowInitializer initializer;
  TableStep step;
  mutable TableEvents events;  // mutable: reads are counted too
  ShardedRows rows;
  OptimizerBinding optimizer;
  OccurrenceCounter occurrence_counter;
  SharedRows shared;
};

// Requires: the table outlives it.
std::unique_ptr<SnapshotSource> MakeSnapshotSource(TableParts* table);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_
