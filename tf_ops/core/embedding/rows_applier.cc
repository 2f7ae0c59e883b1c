#include "tf_ops/core/embedding/rows_applier.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace lodestar {

Status RowChecks::CheckKind(int dim, RowType type, int64_t shared_rows) const {
  if (dim != table_.rows.dim()) {
    return InvalidArgument("the rows have dimension ", dim,
                           ", but the table's dimension is ", table_.rows.dim(),
                           ".");
  }
  if (type != table_.rows.type()) {
    return InvalidArgument("the rows are ", NameOf(type),
                           ", but the table's rows are ",
                           NameOf(table_.rows.type()), ".");
  }
  const int64_t own = table_.shared.count();
  if (shared_rows == own || shared_rows == 0 || own == 0) return Status();
  return InvalidArgument("there are ", shared_rows,
                         " shared rows, but the table has ", own, ".");
}

Status RowChecks::CheckOptimizer(const AttachedOptimizer& optimizer) const {
  if (optimizer.name.empty()) return Status();
  LODESTAR_RETURN_IF_ERROR(optimizer.Check());
  return table_.optimizer.Check(optimizer);
}

Status RowChecks::CheckCap(int64_t rows) const {
  const int64_t max_rows = table_.policies.eviction.max_rows;
  if (max_rows == 0 || rows <= max_rows) return Status();
  return MoreThanMaxRows(rows, max_rows);
}

Status RowChecks::CheckPending(const EmbeddingRowsView& rows,
                               Span<const int64_t> added,
                               Span<const int64_t> removed) const {
  LODESTAR_RETURN_IF_ERROR(table_.occurrence_counter.Check(rows));
  if (!table_.occurrence_counter.uses_admission()) return Status();
  std::vector<RowRef> refs(rows.pending_ids.size());
  table_.rows.FindAll(rows.pending_ids, refs, nullptr);
  for (int64_t i = 0; i < rows.pending_ids.size(); ++i) {
    const int64_t id = rows.pending_ids[i];
    const bool stays = refs[i].found() &&
                       !std::binary_search(removed.begin(), removed.end(), id);
    if (stays || std::binary_search(added.begin(), added.end(), id)) {
      return DataLoss("id ", id, " is pending, but it has a row.");
    }
  }
  return Status();
}

Status RowChecks::CheckImport(const EmbeddingRowsView& rows) const {
  LODESTAR_RETURN_IF_ERROR(
      CheckRowsView(rows, table_.rows.dim(), table_.rows.type()));
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(rows.optimizer));
  LODESTAR_RETURN_IF_ERROR(table_.occurrence_counter.Check(rows));
  return table_.shared.Check(rows);
}

Status RowsApplier::AttachOptimizer(const AttachedOptimizer& optimizer) {
  const ShardLocks locks(table_.rows);
  return table_.optimizer.Attach(optimizer);
}

void RowsApplier::Remove(RowShard* shard, uint32_t tag, uint32_t row) {
  if (!fresh_ && shard->order != nullptr) shard->order->Remove(row);
  table_.rows.Erase(shard, tag, row);
}

void RowsApplier::WriteRecord(const RowRecords& from, const char* record,
                              RowStore* rows, uint32_t row) {
  const SnapshotRowLayout& layout = from.layout;
  rows->WriteValues(row, record + layout.values());
  if (from.reset_slots || layout.slots() == 0) {
    table_.optimizer.FillSlots(rows, row);
    return;
  }
  for (int s = 0; s < layout.slots(); ++s) {
    std::memcpy(rows->slot(row, s), record + layout.slot(s),
                layout.slot_bytes());
  }
}

void RowsApplier::PutShared(const RowRecords& records) {
  if (!has_shared_rows()) return;
  RowStore* const rows = table_.shared.rows();
  for (int64_t i = 0; i < records.count; ++i) {
    // The id of a shared row is its number.
    const int64_t id = HeadOf(records.record(i)).id;
    const uint32_t row = static_cast<uint32_t>(id);
    rows->Lock(row, id);
    rows->BeforeWrite(row);
    WriteRecord(records, records.record(i), rows, row);
    rows->Unlock(row);
  }
}

template <typename Fn>
Status RowsApplier::ForEachShard(int64_t cost, const ParallelFor* parallel,
                                 const Fn& fn) {
  Mutex mutex;
  Status first;
  RunParallel(parallel, num_shards(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      Status status = fn(&shard(s));
      MutexLock lock(&mutex);
      if (first.ok()) first = std::move(status);
    }
  });
  return first;
}

Status RowsApplier::ReserveIndex(int64_t rows, const ParallelFor* parallel) {
  const int64_t of_shard = rows / static_cast<int64_t>(num_shards());
  return ForEachShard(of_shard * 10 + 1, parallel, [&](RowShard* shard) {
    MutexLock lock(&shard->mutex);
    return shard->index.ReserveEvenly(of_shard);
  });
}

Status RowsApplier::RebuildOrder(const ParallelFor* parallel) {
  if (!table_.rows.ordered()) return Status();
  const int64_t cost =
      table_.rows.size() / static_cast<int64_t>(num_shards()) * 100 + 1;
  return ForEachShard(cost, parallel, [](RowShard* shard) -> Status {
    MutexLock lock(&shard->mutex);
    OrderRebuild order;
    try {
      order.Reserve(*shard);
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("out of memory for the eviction order of ",
                               shard->rows.live(), " rows.");
    }
    order.Run(shard);
    return Status();
  });
}

void RowsApplier::Finish(OccurrenceCounter::State* admission, int64_t step,
                         bool own_step) {
  table_.occurrence_counter.Install(admission);
  table_.step.Set(step, own_step);
  table_.rows.epochs()->Collect();
}

}  // namespace lodestar
