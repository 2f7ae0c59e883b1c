// Training look-ups: rows are found or made, and their sightings counted.

#include <algorithm>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "tf_ops/core/base/guards.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

bool EmbeddingStore::IsToCount(const RowMeta* meta, int64_t now,
                               Span<const uint32_t> occurrences) {
  return !occurrences.empty() || !GuardHolds(StoreGuard::kSightingSet) ||
         meta->last_seen.load(std::memory_order_relaxed) != now ||
         meta->frequency.load(std::memory_order_relaxed) == 0;
}

void EmbeddingStore::CountSighting(RowMeta* meta, int64_t now, int64_t i,
                                   Span<const uint32_t> occurrences) {
  const uint32_t frequency = meta->frequency.load(std::memory_order_relaxed);
  meta->last_seen.store(now, std::memory_order_relaxed);
  meta->frequency.store(
      SaturatingAdd(frequency, occurrences.empty() ? 1 : occurrences[i]),
      std::memory_order_relaxed);
}

void EmbeddingStore::Touch(Span<const int64_t> ids, Span<const RowRef> refs,
                           int64_t now,
                           Span<const uint32_t> occurrences) const {
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (i + kAhead < ids.size() && refs[i + kAhead].found()) {
      const RowRef& ahead = refs[i + kAhead];
      __builtin_prefetch(ahead.meta, 1);
      shards_[ahead.shard]->rows.PrefetchMarks(ahead.row);
    }
    if (!refs[i].found()) continue;
    RowRef ref = refs[i];
    if (!IsToCount(ref.meta, now, occurrences) &&
        RowStore::Holds(ref.meta, ids[i])) {
      continue;
    }
    if (!RowStore::Lock(ref.meta, ids[i])) {
      EpochDomain::Guard guard(&epochs_);
      if (!LockAgain(ids[i], &ref)) continue;
    }
    RowMeta* const meta = ref.meta;
    if (IsToCount(meta, now, occurrences)) {
      shards_[ref.shard]->rows.BeforeWrite(ref.row);
      CountSighting(meta, now, i, occurrences);
    }
    RowStore::Unlock(meta);
  }
}

struct EmbeddingStore::TableSighting {
  int64_t now = 0;
  std::vector<int64_t> missing;
  // Of a table whose rows go in an order.
  IndexLists by_shard;
  std::optional<ShardLocks> locks;
};

// Each table holds its locks and its memory while the next ones reserve theirs.
Status EmbeddingStore::InsertInAll(Span<const TableIds> tables,
                                   Span<const TableSighting> sightings,
                                   const SightingOptions& options,
                                   const ParallelFor* parallel) {
  if (tables.empty() || !options.insert) return Status();
  const std::function<Status()> others = [&] {
    return InsertInAll(tables.subspan(1, tables.size() - 1),
                       sightings.subspan(1, tables.size() - 1), options,
                       parallel);
  };
  const TableIds& table = tables[0];
  using Admit = SightingOptions::Admit;
  if (options.admit == Admit::kNone && !table.store->UsesAdmission()) {
    return others();
  }
  InsertOptions insert;
  insert.now = sightings[0].now;
  insert.count = options.count;
  insert.admission = true;
  insert.admit = options.admit;
  insert.occurrences = table.occurrences;
  insert.before_commit = &others;
  return table.store->InsertMissing(
      table.unique_ids, sightings[0].missing, insert, table.refs, parallel,
      [&](int64_t i, const RowRef& ref) {
        table.store->FillNewRow(table.unique_ids[i], ref);
      });
}

Status EmbeddingStore::FindOrInsert(Span<const TableIds> in_tables,
                                    const SightingOptions& options,
                                    const ParallelFor* parallel) try {
  // All callers lock them in one order.
  std::vector<TableIds> tables(in_tables.begin(), in_tables.end());
  std::sort(tables.begin(), tables.end(),
            [](const TableIds& a, const TableIds& b) {
              return std::less<>()(a.store, b.store);
            });
  std::vector<TableSighting> sightings(tables.size());
  std::vector<int64_t> offsets(tables.size() + 1, 0);
  for (size_t t = 0; t < tables.size(); ++t) {
    EmbeddingStore& store = *tables[t].store;
    const Span<const int64_t>& ids = tables[t].unique_ids;
    offsets[t + 1] = offsets[t] + ids.size();
    // One step for the whole call, whatever other callers do to it meanwhile.
    sightings[t].now = store.step();
    if (options.count && store.shards_[0]->order != nullptr) {
      sightings[t].by_shard = store.GroupByShard(ids);
      sightings[t].locks.emplace(store, std::defer_lock);
    }
  }
  // body(t, first, count) for ranges of the ids: one loop for all tables, each
  // of which may be too small for two threads.
  const auto for_each_range = [&](int64_t cost, const auto& body) {
    RunParallel(
        parallel, offsets.back(), cost, [&](int64_t begin, int64_t end) {
          size_t t = std::upper_bound(offsets.begin(), offsets.end(), begin) -
                     offsets.begin() - 1;
          for (; t < tables.size() && offsets[t] < end; ++t) {
            const int64_t first = std::max(begin, offsets[t]) - offsets[t];
            const int64_t last = std::min(end, offsets[t + 1]) - offsets[t];
            if (first < last) body(t, first, last - first);
          }
        });
  };
  for_each_range(kFindCost, [&](size_t t, int64_t first, int64_t count) {
    const TableIds& table = tables[t];
    table.store->FindEach(table.unique_ids.subspan(first, count),
                          table.refs.subspan(first, count));
  });
  for (size_t t = 0; t < tables.size(); ++t) {
    const TableIds& table = tables[t];
    for (int64_t i = 0; i < table.refs.size(); ++i) {
      const bool found = table.refs[i].found();
      if (!found) sightings[t].missing.push_back(i);
      if (table.resident != nullptr) table.resident[i] = found;
    }
  }
  LODESTAR_RETURN_IF_ERROR(InsertInAll(tables, sightings, options, parallel));
  if (options.count) {
    for_each_range(20, [&](size_t t, int64_t first, int64_t count) {
      if (sightings[t].locks.has_value()) return;
      const TableIds& table = tables[t];
      Span<const uint32_t> occurrences = table.occurrences;
      if (!occurrences.empty()) occurrences = occurrences.subspan(first, count);
      table.store->Touch(table.unique_ids.subspan(first, count),
                         table.refs.subspan(first, count), sightings[t].now,
                         occurrences);
    });
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    const TableIds& table = tables[t];
    EmbeddingStore& store = *table.store;
    if (sightings[t].locks.has_value()) {
      sightings[t].locks->Lock();
      store.TouchInOrder(table.unique_ids, sightings[t].by_shard, table.refs,
                         sightings[t].now, table.occurrences, parallel);
      sightings[t].locks.reset();
    }
    const int64_t missing = static_cast<int64_t>(sightings[t].missing.size());
    store.misses_.fetch_add(missing, std::memory_order_relaxed);
    store.hits_.fetch_add(table.unique_ids.size() - missing,
                          std::memory_order_relaxed);
  }
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the rows of a batch");
}

}  // namespace lodestar
