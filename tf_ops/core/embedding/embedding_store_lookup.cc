// EmbeddingStore: lookups, with and without creating rows and counting
// occurrences.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <new>
#include <optional>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

using Probe = ShardedRows::Probe;

void EmbeddingStore::ReadMissing(int64_t id, const Missing& missing,
                                 void* row) const {
  switch (missing.kind) {
    case Missing::Kind::kZeros:
      std::memset(row, 0, row_bytes());
      return;
    case Missing::Kind::kInitial:
      table_.rows.Draw(table_.initializer, id, row);
      return;
    case Missing::Kind::kVector:
      std::memcpy(row, missing.vector, row_bytes());
      return;
    case Missing::Kind::kShared:
      if (table_.shared.any()) {
        table_.shared.Read(id, row);
      } else {
        std::memset(row, 0, row_bytes());
      }
      return;
  }
}

void EmbeddingStore::ReadRows(const TableIds& ids, int64_t begin, int64_t end) {
  const EmbeddingStore& store = *ids.store;
  const ShardedRows& rows = store.table_.rows;
  const auto position = [&](int64_t i) {
    return ids.positions.empty() ? i : ids.positions[i];
  };
  rows.VisitRowWidth([&](auto width) {
    char* row = static_cast<char*>(ids.rows) + begin * width;
    for (int64_t i = begin; i < end; ++i, row += width) {
      if (i + kAhead < end && position(i + kAhead) != kNoPosition) {
        const RowRef& next = ids.refs[position(i + kAhead)];
        if (next.found()) RowStore::Prefetch(next.meta, width);
      }
      const int64_t u = position(i);
      if (u == kNoPosition) {
        std::memset(row, 0, width);
        continue;
      }
      const int64_t id = ids.unique_ids[u];
      const RowRef& ref = ids.refs[u];
      if (ref.found()) {
        const RowShard& shard = rows.shard(ref.shard);
        if (shard.rows.Read(ref.meta, id, width, row)) continue;
        EpochDomain::Guard guard(rows.epochs());
        if (shard.ReadAgain(rows.HashOf(id).tag, id, row)) continue;
      }
      store.ReadMissing(id, ids.missing, row);
    }
  });
}

ReadCounts EmbeddingStore::Find(Span<const int64_t> ids,
                                const int64_t* padding_id,
                                const Missing& missing, void* rows, bool* found,
                                const ParallelFor* parallel) const {
  const auto visit = [&](int64_t first, Span<const int64_t> run, Probe* probes,
                         ReadCounts* counts) {
    table_.rows.VisitRowWidth([&](auto width) {
      char* row = static_cast<char*>(rows) + first * width;
      for (int i = 0; i < run.size(); ++i, row += width) {
        Probe& probe = probes[i];
        bool is_found = false;
        if (padding_id != nullptr && run[i] == *padding_id) {
          std::memset(row, 0, width);
        } else {
          const bool any = probe.ref.found();
          while (probe.ref.found() &&
                 !(is_found = probe.shard->rows.Read(probe.ref.meta, run[i],
                                                     width, row))) {
            probe.Advance();
          }
          if (any && !is_found) {
            is_found = probe.shard->ReadAgain(probe.tag, run[i], row);
          }
          if (!is_found) ReadMissing(run[i], missing, row);
          ++(is_found ? counts->hits : counts->misses);
        }
        if (found != nullptr) found[first + i] = is_found;
      }
    });
  };
  const int64_t bytes = table_.rows.shard(0).rows.stored().bytes();
  const auto load = [bytes](const RowStore&, const RowRef& ref) {
    RowStore::Prefetch(ref.meta, bytes);
  };
  std::atomic<int64_t> hits{0};
  std::atomic<int64_t> misses{0};
  RunParallel(parallel, ids.size(), RowCost(dim()),
              [&](int64_t begin, int64_t end) {
                ReadCounts counts;
                table_.rows.ForEachRun(
                    ids.subspan(begin, end - begin), load,
                    [&](int64_t first, Span<const int64_t> run, Probe* probes) {
                      visit(begin + first, run, probes, &counts);
                    });
                hits.fetch_add(counts.hits, std::memory_order_relaxed);
                misses.fetch_add(counts.misses, std::memory_order_relaxed);
              });
  return {hits, misses};
}

Status EmbeddingStore::Frequency(Span<const int64_t> ids,
                                 Span<int64_t> frequencies,
                                 const Execution& on) const {
  RunParallel(
      on.parallel(), ids.size(), kFindCost, [&](int64_t begin, int64_t end) {
        table_.rows.ForEachRun(
            ids.subspan(begin, end - begin), ShardedRows::kLoadMeta,
            [&](int64_t first, Span<const int64_t> run, Probe* probes) {
              for (int i = 0; i < run.size(); ++i) {
                RowRef ref = probes[i].Confirm(run[i]);
                uint32_t frequency = 0;
                while (ref.found() &&
                       !RowStore::ReadFrequency(ref.meta, run[i], &frequency)) {
                  ref = probes[i].Confirm(run[i]);
                }
                frequencies[begin + first + i] = ref.found() ? frequency : 0;
              }
            });
      });
  return Status();
}

struct EmbeddingStore::TableCall {
  TableIds ids;
  int64_t first = 0;  // of its range, see ForEachRange
  int64_t size = 0;
  // One step for the whole call, even if other calls move the step.
  int64_t now = 0;
  std::vector<int64_t> missing;
  // For a table with an eviction order: all shards are locked and the step is
  // read under the locks. Otherwise a call overtaken by others would have to
  // move its rows past all of theirs.
  ShardedRows::IndexLists by_shard;
  std::optional<ShardLocks> locks;
};

template <typename Size, typename Body>
void EmbeddingStore::ForEachRange(std::vector<TableCall>* calls,
                                  const Size& size, int64_t cost,
                                  const ParallelFor* parallel,
                                  const Body& body) {
  int64_t total = 0;
  for (TableCall& call : *calls) {
    call.first = total;
    call.size = size(call);
    total += call.size;
  }
  const auto before = [](int64_t number, const TableCall& call) {
    return number < call.first;
  };
  RunParallel(parallel, total, cost, [&](int64_t begin, int64_t end) {
    auto call =
        std::upper_bound(calls->begin(), calls->end(), begin, before) - 1;
    for (; call != calls->end() && call->first < end; ++call) {
      const int64_t from = std::max(begin, call->first) - call->first;
      const int64_t to = std::min(end - call->first, call->size);
      if (from < to) body(&*call, from, to);
    }
  });
}

Status EmbeddingStore::LockAndInsert(std::vector<TableCall>* calls,
                                     const LookupOptions& options,
                                     const ParallelFor* parallel) {
  std::deque<InsertPlan> plans;
  for (TableCall& call : *calls) {
    TableParts* const table = &call.ids.store->table_;
    if (call.locks.has_value()) {
      call.locks->Lock();
      call.now = table->step.value();
    }
    if (!options.insert || (options.admit == LookupOptions::Admit::kNone &&
                            !table->occurrence_counter.uses_admission())) {
      continue;
    }
    InsertPlan::Options insert;
    insert.locked = call.locks.has_value();
    insert.call = {call.now, options.count_frequency, /*admission=*/true,
                   options.admit, call.ids.occurrences};
    const Span<const int64_t> ids = call.ids.unique_ids;
    plans.emplace_back(
        ids, call.ids.refs, insert,
        [table, ids](int64_t i, const RowRef& ref) {
          table->FillNewRow(ids[i], ref);
        },
        table);
    LODESTAR_RETURN_IF_ERROR(plans.back().Prepare(call.missing));
  }
  for (InsertPlan& plan : plans) plan.Commit(parallel);
  return Status();
}

Status EmbeddingStore::FindOrInsert(Span<const TableIds> in_tables,
                                    const LookupOptions& options,
                                    const ParallelFor* parallel) try {
  // All callers lock tables in the same order.
  std::vector<TableIds> tables(in_tables.begin(), in_tables.end());
  std::sort(tables.begin(), tables.end(),
            [](const TableIds& a, const TableIds& b) {
              return std::less<>()(a.store, b.store);
            });
  std::vector<TableCall> calls(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    LODESTAR_RETURN_IF_ERROR(tables[t].store->table_.rows.CheckTrains());
    calls[t].ids = tables[t];
  }
  for (TableCall& call : calls) {
    const TableParts& table = call.ids.store->table_;
    call.now = table.step.value();
    if (options.count_frequency && table.rows.ordered()) {
      call.by_shard = table.rows.GroupByShard(call.ids.unique_ids);
      call.locks.emplace(table.rows, std::defer_lock);
    }
  }
  const auto num_ids = [](const TableCall& call) {
    return call.ids.unique_ids.size();
  };
  ForEachRange(&calls, num_ids, kFindCost, parallel,
               [](TableCall* call, int64_t begin, int64_t end) {
                 const TableIds& ids = call->ids;
                 ids.store->table_.rows.FindEach(
                     ids.unique_ids.subspan(begin, end - begin),
                     ids.refs.subspan(begin, end - begin));
               });
  for (TableCall& call : calls) {
    for (int64_t i = 0; i < call.ids.refs.size(); ++i) {
      const bool found = call.ids.refs[i].found();
      if (!found) call.missing.push_back(i);
      if (call.ids.resident != nullptr) call.ids.resident[i] = found;
    }
  }
  LODESTAR_RETURN_IF_ERROR(LockAndInsert(&calls, options, parallel));
  // Counting and reading are two walks: a lock waits until the processor has
  // written all earlier rows of the output, so one walk takes longer.
  if (options.count_frequency) {
    ForEachRange(&calls, num_ids, 20, parallel,
                 [](TableCall* call, int64_t begin, int64_t end) {
                   if (call->locks.has_value()) return;
                   const TableIds& ids = call->ids;
                   Span<const uint32_t> occurrences = ids.occurrences;
                   if (!occurrences.empty()) {
                     occurrences = occurrences.subspan(begin, end - begin);
                   }
                   ids.store->table_.occurrence_counter.Touch(
                       ids.unique_ids.subspan(begin, end - begin),
                       ids.refs.subspan(begin, end - begin), call->now,
                       occurrences);
                 });
  }
  int64_t widest = 0;
  for (TableCall& call : calls) {
    TableParts& table = call.ids.store->table_;
    if (call.locks.has_value()) {
      table.occurrence_counter.TouchInOrder(call.ids.unique_ids, call.by_shard,
                                            call.ids.refs, call.now,
                                            call.ids.occurrences, parallel);
      call.locks.reset();
    }
    widest = std::max<int64_t>(widest, call.ids.store->dim());
    const int64_t missing = static_cast<int64_t>(call.missing.size());
    table.events.Add(Event::kMisses, missing);
    table.events.Add(Event::kHits, call.ids.unique_ids.size() - missing);
  }
  const auto num_rows = [](const TableCall& call) {
    return call.ids.rows == nullptr ? 0 : call.ids.num_rows();
  };
  ForEachRange(&calls, num_rows, 20 + widest, parallel,
               [](TableCall* call, int64_t begin, int64_t end) {
                 ReadRows(call->ids, begin, end);
               });
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the rows of a batch.");
}

Status EmbeddingStore::Lookup(const TableLookup& lookup,
                              const Execution& on) try {
  std::vector<int64_t> unique;
  BatchUnique(lookup.ids, lookup.padding_id, &unique, lookup.positions);
  // Allocates everything except rows first: nothing may fail after these are
  // created.
  const int64_t count = static_cast<int64_t>(unique.size());
  int64_t* unique_ids = nullptr;
  LookupPlan* plan = nullptr;
  LODESTAR_RETURN_IF_ERROR(lookup.allocate(count, &unique_ids, &plan));
  std::copy(unique.begin(), unique.end(), unique_ids);
  *plan = PlanOf(std::vector<RowRef>(count));
  std::vector<uint32_t> occurrences;
  if (counts_occurrences()) {
    occurrences = CountOccurrences(lookup.positions, count);
  }
  const TableIds table = {
      this,        unique,      plan->refs,       nullptr,
      occurrences, lookup.rows, lookup.positions, lookup.missing};
  LODESTAR_RETURN_IF_ERROR(
      FindOrInsert({&table, 1}, lookup.options, on.parallel()));
  const int64_t padding = lookup.padding_id == nullptr
                              ? 0
                              : std::count(lookup.positions.begin(),
                                           lookup.positions.end(), kNoPosition);
  CountBatch(lookup.ids.size(), count, padding);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the rows of a batch.");
}

Status EmbeddingStore::LookupUnique(const UniqueLookup& lookup,
                                    const Execution& on) try {
  if (!lookup.known_unique) {
    LODESTAR_RETURN_IF_ERROR(CheckUnique("ids", lookup.ids));
  }
  std::vector<RowRef> refs(lookup.ids.size());
  const TableIds table = {this,
                          lookup.ids,
                          refs,
                          reinterpret_cast<char*>(lookup.resident),
                          lookup.occurrences,
                          lookup.rows,
                          {},
                          lookup.missing};
  LODESTAR_RETURN_IF_ERROR(
      FindOrInsert({&table, 1}, lookup.options, on.parallel()));
  int64_t num_ids = lookup.occurrences.empty() ? lookup.ids.size() : 0;
  for (const uint32_t times : lookup.occurrences) num_ids += times;
  CountBatch(num_ids, lookup.ids.size(), 0);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the rows of a batch.");
}

}  // namespace lodestar
