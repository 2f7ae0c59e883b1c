// EmbeddingStore: export, import and inspection.

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

Status EmbeddingStore::ExportParts(Exported what, EmbeddingRows* out,
                                   const Execution& on) const try {
  // Rows stay in place; updates may continue.
  const ShardedRows& table = table_.rows;
  ShardLocks locks(table);
  EmbeddingRows result;
  result.step = step();
  result.seed = table_.initializer.seed();
  result.salt = table_.initializer.salt();
  result.own_step = table_.step.own();
  if (what == Exported::kAll || what == Exported::kState) {
    result.optimizer = table_.optimizer.optimizer();
  }
  const int64_t num_slots = result.optimizer.slot_inits.size();
  std::vector<std::pair<int64_t, RowRef>> order;
  if (what != Exported::kState) order.reserve(size());
  for (size_t s = 0; what != Exported::kState && s < table.num_shards(); ++s) {
    table.shard(s).ForEachRow([&](uint32_t row, int64_t id) {
      order.push_back({id, table.RefTo(static_cast<uint32_t>(s), row)});
    });
  }
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  result.ids.resize(order.size());
  if (what == Exported::kIds) {
    for (size_t i = 0; i < order.size(); ++i) result.ids[i] = order[i].first;
    order.clear();
  }
  result.values.Resize(type(), order.size() * dim());
  result.slots.Resize(RowType::kFloat32,
                      order.size() * result.optimizer.slots().Size(dim()));
  result.frequencies.resize(order.size());
  result.last_seen.resize(order.size());
  const int64_t count = static_cast<int64_t>(order.size());
  RunParallel(
      on.parallel(), count, 100 + dim(), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const auto& [id, ref] = order[i];
          const ShardedRows::Counts seen =
              table.CopyOut(table.shard(ref.shard).rows, ref.row, id, i, count,
                            num_slots, &result.values, &result.slots);
          result.ids[i] = id;
          result.frequencies[i] = seen.frequency;
          result.last_seen[i] = seen.last_seen;
        }
      });
  table_.occurrence_counter.Export(&result);
  if (table_.shared.any()) table_.shared.Export(&result);
  *out = std::move(result);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while exporting ", size(), " rows.");
}

// Imports rows by (last step, mixed id), if the table has an eviction order:
// adding a row to it takes constant time then.
std::vector<int64_t> EmbeddingStore::OrderOfImport(
    const EmbeddingRowsView& rows) const {
  std::vector<int64_t> order(rows.ids.size());
  for (int64_t i = 0; i < rows.ids.size(); ++i) order[i] = i;
  if (!table_.rows.ordered()) return order;
  const auto key_of = [&](int64_t i) {
    return std::make_pair(rows.last_seen[i],
                          Mix64(static_cast<uint64_t>(rows.ids[i])));
  };
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return key_of(a) < key_of(b); });
  return order;
}

Status EmbeddingStore::Import(const EmbeddingRowsView& rows,
                              const Execution& on) try {
  LODESTAR_RETURN_IF_ERROR(row_checks().CheckImport(rows));
  return Merge(rows, on.parallel());
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while importing ", rows.ids.size(),
                           " rows.");
}

Status EmbeddingStore::CreateFrom(const EmbeddingRowsView& rows,
                                  const EmbeddingStore& like,
                                  const Execution& on,
                                  std::unique_ptr<EmbeddingStore>* out) try {
  LODESTAR_RETURN_IF_ERROR(like.row_checks().CheckImport(rows));
  const TableParts& old = like.table_;
  std::unique_ptr<EmbeddingStore> store;
  LODESTAR_RETURN_IF_ERROR(CreateEmptyLike(
      like, rows.with_counters ? rows.seed : old.initializer.seed(),
      rows.with_counters ? rows.salt : old.initializer.salt(), &store));
  TableParts& table = store->table_;
  LODESTAR_RETURN_IF_ERROR(store->Merge(rows, on.parallel()));
  for (size_t s = 0; table.rows.ordered() && s < table.rows.num_shards(); ++s) {
    RowShard& shard = table.rows.shard(s);
    MutexLock lock(&shard.mutex);
    shard.order->MarkSorted();
  }
  OccurrenceCounter::State admission;
  LODESTAR_RETURN_IF_ERROR(table.occurrence_counter.Build(rows, &admission));
  table.occurrence_counter.Install(&admission);
  if (table.shared.any()) table.shared.Import(rows);
  if (rows.with_counters) table.step.Set(rows.step, rows.own_step);
  LODESTAR_RETURN_IF_ERROR(store->CopyLiveState(like, rows, on));
  *out = std::move(store);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while importing ", rows.ids.size(),
                           " rows.");
}

Status EmbeddingStore::CreateReplacement(const EmbeddingRowsView& rows,
                                         const Execution& on,
                                         std::unique_ptr<Table>* out) const {
  std::unique_ptr<EmbeddingStore> store;
  LODESTAR_RETURN_IF_ERROR(CreateFrom(rows, *this, on, &store));
  *out = std::move(store);
  return Status();
}

Status EmbeddingStore::CopyLiveState(const Table& like, const OwnState& own,
                                     const Execution&) {
  const TableParts& old = static_cast<const EmbeddingStore&>(like).table_;
  if (!own.step) table_.step.Set(old.step.value(), old.step.own());
  if (!own.shared_rows) table_.shared.CopyValues(old.shared);
  table_.events.Share(old.events);
  return Status();
}

Status EmbeddingStore::Merge(const EmbeddingRowsView& rows,
                             const ParallelFor* parallel) {
  table_.rows.changes().WaitForImages();
  const std::vector<int64_t> order = OrderOfImport(rows);
  std::vector<RowRef> refs(rows.ids.size());
  FindAll(rows.ids, refs, parallel);
  std::vector<int64_t> missing;
  for (int64_t i : order) {
    if (!refs[i].found()) missing.push_back(i);
  }
  std::vector<char> inserted(rows.ids.size(), 0);
  ShardLocks locks(table_.rows, std::defer_lock);
  NumbersView slots = rows.slots;
  const auto write = [&](int64_t i, RowStore* store, uint32_t row) {
    // Resets the slots, so it does not matter whether the row existed.
    if (slots.empty()) table_.optimizer.FillSlots(store, row);
    table_.rows.CopyIn(rows.values, slots, i, rows.ids.size(), store, row);
  };
  {
    InsertPlan::Options options;
    options.refuse_excess = true;
    options.last_seen = rows.last_seen;
    options.frequencies = rows.frequencies;
    if (!rows.optimizer.name.empty()) options.optimizer = &rows.optimizer;
    InsertPlan plan(
        rows.ids, refs, options,
        [&](int64_t i, const RowRef& ref) {
          write(i, &table_.rows.shard(ref.shard).rows, ref.row);
          inserted[i] = 1;
        },
        &table_);
    LODESTAR_RETURN_IF_ERROR(plan.Prepare(missing));
    plan.Commit(parallel);
  }
  locks.Lock();
  // Another optimizer may have been attached since the plan's locks were
  // released; then slots of this kind no longer exist.
  if (!slots.empty() && !table_.optimizer.IsBoundTo(rows.optimizer)) slots = {};
  RowsApplier applier = rows_applier();
  const auto assign = [&](int64_t i) {
    if (inserted[i]) return;
    table_.rows.LookAgain(rows.ids.subspan(i, 1),
                          Span<RowRef>(refs).subspan(i, 1));
    // If it is gone, it was removed after this call, in effect.
    if (!refs[i].found()) return;
    RowShard& shard = table_.rows.shard(refs[i].shard);
    shard.mutex.AssertHeld();
    applier.Put(&shard, table_.rows.HashOf(rows.ids[i]).tag, refs[i].row,
                rows.ids[i], rows.last_seen[i],
                static_cast<uint32_t>(rows.frequencies[i]),
                [&](RowStore* store, uint32_t row) { write(i, store, row); });
  };
  if (table_.rows.ordered()) {
    for (int64_t i : order) assign(i);
    return Status();
  }
  RunParallel(parallel, rows.ids.size(), 100 + dim(),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) assign(i);
              });
  return Status();
}

EmbeddingStats EmbeddingStore::Stats() const {
  EmbeddingStats stats;
  for (int e = 0; e < kNumEvents; ++e) {
    stats.events[e] = table_.events.count(static_cast<Event>(e));
  }
  stats.rows = size();
  const int64_t now = step();
  stats.max_rows = table_.policies.eviction.max_rows;
  for (size_t s = 0; s < table_.rows.num_shards(); ++s) {
    const RowShard& shard = table_.rows.shard(s);
    MutexLock lock(&shard.mutex);
    const int64_t pending_bytes = table_.occurrence_counter.bytes(s);
    stats.policy_bytes += pending_bytes;
    if (shard.order != nullptr) stats.policy_bytes += shard.order->bytes();
    stats.pending += table_.occurrence_counter.num_pending(s, now);
    stats.index_bytes += shard.index.bytes();
    stats.row_bytes += shard.rows.row_bytes();
    stats.slot_bytes += shard.rows.slot_bytes();
    stats.capacity += shard.rows.capacity();
    stats.shards.push_back({shard.rows.live(), shard.bytes() + pending_bytes});
    if (s == 0 && table_.shared.any()) {
      const RowStore& shared = *table_.rows.shared();
      stats.policy_bytes += shared.row_bytes() + shared.slot_bytes();
    }
  }
  stats.policy_bytes += table_.occurrence_counter.sketch_bytes();
  return stats;
}

Status EmbeddingStore::Inspect(Span<const int64_t> ids, InspectedIds* out,
                               const Execution&) const try {
  const ShardedRows& table = table_.rows;
  ShardLocks locks(table);
  const int64_t now = step();
  const int64_t count = ids.size();
  const AttachedOptimizer& optimizer = table_.optimizer.optimizer();
  const int64_t num_slots = optimizer.slot_inits.size();
  InspectedIds result;
  result.slot_names = optimizer.slot_names;
  result.values.Resize(type(), count * dim());
  result.slot_width = optimizer.slots().Width(dim());
  result.slots.Resize(RowType::kFloat32, optimizer.slots().Size(dim()) * count);
  result.frequencies.resize(count);
  result.last_seen.resize(count, -1);
  result.shards.resize(count);
  result.states.resize(count, InspectedIds::kMissing);
  for (int64_t i = 0; i < count; ++i) {
    const ShardedRows::IdHash hash = table.HashOf(ids[i]);
    const RowShard& shard = table.shard(hash.shard);
    result.shards[i] = hash.shard;
    const uint32_t row = shard.Find(hash.tag, ids[i]);
    if (row != LeafIndex::kNoRow) {
      const ShardedRows::Counts seen =
          table.CopyOut(shard.rows, row, ids[i], i, count, num_slots,
                        &result.values, &result.slots);
      result.frequencies[i] = seen.frequency;
      result.last_seen[i] = seen.last_seen;
      result.states[i] = InspectedIds::kResident;
      continue;
    }
    const OccurrenceCounter::Counts pending =
        table_.occurrence_counter.CountsOf(hash.shard, hash.tag, ids[i], now);
    result.frequencies[i] = pending.occurrences;
    result.last_seen[i] = pending.last_seen;
    if (pending.occurrences > 0) result.states[i] = InspectedIds::kPending;
  }
  *out = std::move(result);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while inspecting ", ids.size(),
                           " ids.");
}

}  // namespace lodestar
