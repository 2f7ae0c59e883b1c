// The parts of a table. EmbeddingStore implements the operations on them.
// Snapshots see them through SnapshotSource, restores through RowsApplier.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_changes.h"
#include "tf_ops/core/embedding/occurrence_counter.h"
#include "tf_ops/core/embedding/optimizer_binding.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/embedding/shared_rows.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_images.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/table_policies.h"
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
        occurrence_counter(policies.admission, &rows, &step),
        shared(policies.shared_rows, initializer, &rows, &optimizer) {}

  // Initializes a row that is not visible yet.
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

// The parts that a snapshot reads, and how it begins and ends.
class SnapshotSource {
 public:
  explicit SnapshotSource(TableParts* table) : table_(*table) {}

  // Budget of the running snapshot; null: none is running.
  std::shared_ptr<ImageBudget> budget() const {
    return table_.rows.changes().budget();
  }
  // Locks nothing yet.
  ShardLocks Locks() const { return ShardLocks(table_.rows, std::defer_lock); }

  // The methods below require all locks, except for End.

  // Reserves the memory that Begin needs.
  Status ReserveMarks() { return table_.rows.ReserveMarks(); }
  const AttachedOptimizer& optimizer() const {
    return table_.optimizer.optimizer();
  }
  const RowInitializer& initializer() const { return table_.initializer; }
  const TableStep& step() const { return table_.step; }
  const OccurrenceCounter& occurrence_counter() const {
    return table_.occurrence_counter;
  }
  size_t num_shards() const { return table_.rows.num_shards(); }
  int64_t num_shared_rows() const { return table_.shared.count(); }
  // The rows of each shard, and then the shared rows, if any.
  std::vector<RowStore*> stores() {
    std::vector<RowStore*> stores;
    for (size_t s = 0; s < num_shards(); ++s) {
      stores.push_back(&table_.rows.shard(s).rows);
    }
    if (table_.shared.any()) stores.push_back(table_.rows.shared());
    return stores;
  }

  // Begins a snapshot. Next, call BeginSnapshot of all stores. Returns the ids
  // removed since the base by shard. Requires: ReserveMarks, no running
  // snapshot, and room for all shards in `removed`.
  void Begin(std::shared_ptr<ImageBudget> budget,
             std::vector<std::vector<int64_t>>* removed) {
    ShardedRows& rows = table_.rows;
    if (rows.changes().base().empty()) rows.StartMarking();
    rows.changes().BeginSnapshot(std::move(budget));
    for (size_t s = 0; s < num_shards(); ++s) {
      rows.shard(s).mutex.AssertHeld();
      (*removed)[s] = rows.shard(s).removed.Take();
    }
  }
  // Ends it in stores that had `ends` rows when it began. *base becomes the
  // table's base; null: the snapshot failed, and `removed` are removed ids
  // again. Call after EndImages of all stores.
  void End(const std::vector<int64_t>& ends,
           std::vector<std::vector<int64_t>> removed, std::string* base) {
    TableChanges& changes = table_.rows.changes();
    const bool marking = changes.HasBaseAfter(base);
    for (size_t p = 0; p < ends.size(); ++p) {
      const bool shared = p == num_shards();
      RowShard& shard = table_.rows.shard(shared ? 0 : p);
      RowStore& store = shared ? *table_.rows.shared() : shard.rows;
      MutexLock lock(&shard.mutex);
      store.EndSnapshot(ends[p], base == nullptr);
      if (!marking) store.StopMarking();
      if (shared) continue;
      if (!marking) {
        shard.removed.Forget();
      } else if (base == nullptr &&
                 !shard.removed.Restore(std::move(removed[p]))) {
        changes.ForgetBase();
      }
    }
    changes.EndSnapshot(base);
  }

 private:
  TableParts& table_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_
