// RowsApplier: brings the rows of an import or of snapshot files into a table.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_ROWS_APPLIER_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_ROWS_APPLIER_H_

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/occurrence_counter.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/embedding/table_parts.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/eviction_orders.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/snapshot_record.h"
#include "tf_ops/core/rows/table_policies.h"
#include "tf_ops/core/table/embedding_rows.h"
#include "tf_ops/core/table/table_events.h"

namespace lodestar {

// What a table accepts. Changes nothing. Thread-safe.
class RowChecks {
 public:
  explicit RowChecks(const TableParts& table) : table_(table) {}

  // Returns InvalidArgument if rows of this kind do not fit the table. One of
  // the two may have no shared rows.
  Status CheckKind(int dim, RowType type, int64_t shared_rows) const;
  // Returns InvalidArgument for an invalid optimizer and FailedPrecondition if
  // another one is attached. No optimizer (an empty name) is accepted.
  Status CheckOptimizer(const AttachedOptimizer& optimizer) const;
  // Returns FailedPrecondition if the table's cap is less than `rows`.
  Status CheckCap(int64_t rows) const;
  // Checks pending ids and the sketch. Returns InvalidArgument if they are
  // invalid or belong to another kind of admission, DataLoss if a pending id
  // has a row. Before that, ids in `added` get and ids in `removed` lose their
  // row; both are ascending.
  Status CheckPending(const EmbeddingRowsView& rows,
                      Span<const int64_t> added = {},
                      Span<const int64_t> removed = {}) const;
  // Checks all of an import except the cap. See EmbeddingStore::Import.
  Status CheckImport(const EmbeddingRowsView& rows) const;

  const RowInitializer& initializer() const { return table_.initializer; }
  const AttachedOptimizer& optimizer() const {
    return table_.optimizer.optimizer();
  }
  bool has_shared_rows() const { return table_.shared.any(); }
  size_t num_shards() const { return table_.rows.num_shards(); }
  ShardLocks LockAll() const { return ShardLocks(table_.rows); }

 private:
  const TableParts& table_;
};

inline SnapshotRowHead HeadOf(const char* record) {
  SnapshotRowHead head;
  __builtin_memcpy(&head, record, sizeof(head));
  return head;
}

// Records of rows, or of shared rows, in a snapshot file.
struct RowRecords {
  const char* data = nullptr;
  int64_t count = 0;
  SnapshotRowLayout layout;
  bool reset_slots = false;  // ignore their optimizer slots

  const char* record(int64_t i) const { return data + i * layout.bytes(); }
};

// Records grouped by shard. Shard s has items [begins[s], begins[s + 1]).
struct RecordGroups {
  struct Item {
    uint32_t tag;
    const char* record;
  };
  std::vector<uint32_t> begins;
  std::vector<Item> items;
};

class RowsApplier : public RowChecks {
 public:
  // `fresh`: no other thread uses the table, and it ignores the eviction order
  // until RebuildOrder.
  explicit RowsApplier(TableParts* table, bool fresh = false)
      : RowChecks(*table), table_(*table), fresh_(fresh) {}

  // Takes all locks. Rows that already exist get the initial slot values.
  Status AttachOptimizer(const AttachedOptimizer& optimizer);

  // Rows. These require the lock of the shard.

  RowShard& shard(size_t s) { return table_.rows.shard(s); }
  Status Reserve(RowShard* shard, Span<const uint32_t> tags)
      LODESTAR_REQUIRES(shard->mutex) {
    return table_.rows.Reserve(shard, tags);
  }
  // Writes the row of an id: a new one, which needs Reserve, if `row` is
  // kNoRow. write(rows, row) writes its value and slots. Returns the row.
  template <typename Write>
  uint32_t Put(RowShard* shard, uint32_t tag, uint32_t row, int64_t id,
               int64_t last_seen, uint32_t frequency, const Write& write)
      LODESTAR_REQUIRES(shard->mutex);
  uint32_t Put(const RowRecords& from, const char* record, RowShard* shard,
               uint32_t tag, uint32_t row) LODESTAR_REQUIRES(shard->mutex) {
    const SnapshotRowHead head = HeadOf(record);
    return Put(shard, tag, row, head.id, head.last_seen, head.frequency,
               [&](RowStore* rows, uint32_t to) {
                 WriteRecord(from, record, rows, to);
               });
  }
  void Remove(RowShard* shard, uint32_t tag, uint32_t row)
      LODESTAR_REQUIRES(shard->mutex);

  // Thread-safe. The caller counts the rows that it adds and removes.

  // See TableChanges.
  void WaitForImages() const { table_.rows.changes().WaitForImages(); }
  void CountAdded(int64_t rows) { Count(Event::kInserts, rows, rows); }
  void CountRemoved(int64_t rows) { Count(Event::kRemoved, rows, -rows); }
  ShardedRows::IdHash HashOf(int64_t id) const {
    return table_.rows.HashOf(id);
  }
  // Groups the records whose ids `keep` returns true for.
  template <typename Keep>
  void Group(const RowRecords& records, const Keep& keep,
             RecordGroups* groups) const;
  // Writes records of shared rows, if the table has shared rows.
  void PutShared(const RowRecords& records);
  // For a fresh table.

  // Reserves the index for `rows` rows.
  Status ReserveIndex(int64_t rows, const ParallelFor* parallel);
  Status RebuildOrder(const ParallelFor* parallel);

  // Sets the rest of the state. Only BuildAdmission can fail.
  Status BuildAdmission(const EmbeddingRowsView& rows,
                        OccurrenceCounter::State* admission) const {
    return table_.occurrence_counter.Build(rows, admission);
  }
  void Finish(OccurrenceCounter::State* admission, int64_t step, bool own_step);

 private:
  void Count(Event event, int64_t count, int64_t rows) {
    table_.rows.AddToSize(rows);
    table_.events.Add(event, count);
  }
  void WriteRecord(const RowRecords& from, const char* record, RowStore* rows,
                   uint32_t row);
  template <typename Fn>
  Status ForEachShard(int64_t cost, const ParallelFor* parallel, const Fn& fn);

  TableParts& table_;
  const bool fresh_;
};

template <typename Write>
uint32_t RowsApplier::Put(RowShard* shard, uint32_t tag, uint32_t row,
                          int64_t id, int64_t last_seen, uint32_t frequency,
                          const Write& write) {
  RowStore* const rows = &shard->rows;
  EvictionOrders* const order = fresh_ ? nullptr : shard->order.get();
  if (row == LeafIndex::kNoRow) {
    row = rows->Allocate();
    write(rows, row);
    table_.rows.Insert(shard, tag, row, id, last_seen, frequency);
  } else {
    if (order != nullptr) order->Remove(row);
    // The row cannot be freed or moved without the shard's mutex.
    rows->Lock(row, id);
    rows->BeforeWrite(row);
    write(rows, row);
    RowMeta* const meta = rows->meta(row);
    meta->last_seen.store(last_seen, std::memory_order_relaxed);
    meta->frequency.store(frequency, std::memory_order_relaxed);
    rows->Unlock(row);
  }
  if (order != nullptr) order->Add(row);
  return row;
}

template <typename Keep>
void RowsApplier::Group(const RowRecords& records, const Keep& keep,
                        RecordGroups* groups) const {
  groups->begins.assign(num_shards() + 2, 0);
  // Counts are stored two entries ahead, so that placing the records turns them
  // into the begins.
  int64_t kept = 0;
  for (int64_t i = 0; i < records.count; ++i) {
    const int64_t id = HeadOf(records.record(i)).id;
    if (!keep(id)) continue;
    ++groups->begins[HashOf(id).shard + 2];
    ++kept;
  }
  groups->items.resize(kept);
  for (size_t s = 2; s < groups->begins.size(); ++s) {
    groups->begins[s] += groups->begins[s - 1];
  }
  for (int64_t i = 0; i < records.count; ++i) {
    const int64_t id = HeadOf(records.record(i)).id;
    if (!keep(id)) continue;
    const ShardedRows::IdHash hash = HashOf(id);
    groups->items[groups->begins[hash.shard + 1]++] = {hash.tag,
                                                       records.record(i)};
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_ROWS_APPLIER_H_
