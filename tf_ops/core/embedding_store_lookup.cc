#include <algorithm>
#include <limits>
#include <new>
#include <vector>

#include "tf_ops/core/embedding_run.h"
#include "tf_ops/core/embedding_store.h"
#include "tf_ops/core/embedding_store_run.h"
#include "tf_ops/core/guards.h"
#include "tf_ops/core/hash.h"

namespace lodestar {

uint32_t EmbeddingStore::FindRow(const Shard& shard, uint32_t tag,
                                 int64_t id) const {
  LeafIndex::Cursor cursor = shard.index.Begin(tag);
  while (true) {
    const uint32_t row = LeafIndex::Next(tag, &cursor);
    if (row == LeafIndex::kNoRow) return row;
    if (shard.rows.Holds(row, id)) return row;
  }
}

namespace {

// What ForEachRun loads.
void LoadMeta(const RowStore&, const RowRef& ref) {
  __builtin_prefetch(ref.meta);
}

void LoadRow(const RowStore& rows, const RowRef& ref) {
  rows.Prefetch(ref.meta);
}

}  // namespace

void EmbeddingStore::FindAll(Span<const int64_t> ids, Span<RowRef> refs,
                             const ParallelFor* parallel) const {
  RunParallel(parallel, ids.size(), 40, [&](int64_t begin, int64_t end) {
    ForEachRun(ids.subspan(begin, end - begin), LoadMeta,
               [&](int64_t first, Span<const int64_t> run, Probe* probes) {
                 for (int i = 0; i < run.size(); ++i) {
                   refs[begin + first + i] = Confirm(run[i], probes + i);
                 }
               });
  });
}

void EmbeddingStore::ReadMissing(int64_t id, const Missing& missing,
                                 float* row) const {
  switch (missing.kind) {
    case Missing::Kind::kZeros:
      std::fill_n(row, dim_, 0.0f);
      return;
    case Missing::Kind::kInitial:
      initializer_.Draw(id, dim_, row);
      return;
    case Missing::Kind::kVector:
      std::copy_n(missing.vector, dim_, row);
      return;
    case Missing::Kind::kShared:
      if (shared_ == nullptr) {
        std::fill_n(row, dim_, 0.0f);
      } else {
        shared_rows().Read(SharedRowOf(id), SharedRowOf(id), row);
      }
      return;
  }
}

// The row went away since it was found; the id may have another now.
bool EmbeddingStore::ReadAgain(const Shard& shard, int64_t id,
                               float* row) const {
  EpochDomain::Guard guard(&epochs_);
  const uint32_t again = FindRow(shard, PlaceOf(id).tag, id);
  return again != LeafIndex::kNoRow && shard.rows.Read(again, id, row);
}

void EmbeddingStore::ReadRow(const RowRef& ref, int64_t id,
                             const Missing& missing, float* row) const {
  if (ref.found()) {
    const Shard& shard = *shards_[ref.shard];
    if (shard.rows.Read(ref.meta, id, row) || ReadAgain(shard, id, row)) return;
  }
  ReadMissing(id, missing, row);
}

void EmbeddingStore::Prefetch(const RowRef& ref) const {
  if (ref.found()) shards_[ref.shard]->rows.Prefetch(ref.meta);
}

void EmbeddingStore::Find(Span<const int64_t> ids, const int64_t* padding_id,
                          const Missing& missing, float* rows, bool* found,
                          const ParallelFor* parallel) const {
  const auto visit = [&](int64_t first, Span<const int64_t> run,
                         Probe* probes) {
    for (int i = 0; i < run.size(); ++i) {
      Probe& probe = probes[i];
      float* row = rows + (first + i) * dim_;
      bool is_found = false;
      if (padding_id != nullptr && run[i] == *padding_id) {
        std::fill_n(row, dim_, 0.0f);
      } else {
        const bool any = probe.ref.found();
        while (probe.ref.found() && !(is_found = probe.shard->rows.Read(
                                          probe.ref.meta, run[i], row))) {
          Advance(&probe);
        }
        if (any && !is_found) is_found = ReadAgain(*probe.shard, run[i], row);
        if (!is_found) ReadMissing(run[i], missing, row);
      }
      if (found != nullptr) found[first + i] = is_found;
    }
  };
  RunParallel(
      parallel, ids.size(), RowCost(dim_), [&](int64_t begin, int64_t end) {
        ForEachRun(ids.subspan(begin, end - begin), LoadRow,
                   [&](int64_t first, Span<const int64_t> run, Probe* probes) {
                     visit(begin + first, run, probes);
                   });
      });
}

void EmbeddingStore::Touch(Span<const int64_t> ids, Span<const RowRef> refs,
                           int64_t now, const ParallelFor* parallel) {
  const auto is_counted = [&](const RowMeta* meta) {
    return GuardHolds(StoreGuard::kSightingSet) &&
           meta->last_seen.load(std::memory_order_relaxed) == now &&
           meta->frequency.load(std::memory_order_relaxed) != 0;
  };
  RunParallel(parallel, ids.size(), 20, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end && refs[i + kAhead].found()) {
        __builtin_prefetch(refs[i + kAhead].meta, 1);
      }
      if (!refs[i].found()) continue;
      RowMeta* meta = refs[i].meta;
      if (is_counted(meta) || !RowStore::Lock(meta, ids[i])) continue;
      if (!is_counted(meta)) {
        const uint32_t frequency =
            meta->frequency.load(std::memory_order_relaxed);
        meta->last_seen.store(now, std::memory_order_relaxed);
        if (frequency != std::numeric_limits<uint32_t>::max()) {
          meta->frequency.store(frequency + 1, std::memory_order_relaxed);
        }
      }
      RowStore::Unlock(meta);
    }
  });
}

Status EmbeddingStore::FindOrInsert(Span<const int64_t> unique_ids,
                                    const SightingOptions& options,
                                    Span<RowRef> refs,
                                    const ParallelFor* parallel,
                                    char* resident) try {
  // One step for the whole call, whatever other callers do to it meanwhile.
  const int64_t now = step();
  const bool in_order = options.count && shards_[0]->order != nullptr;
  IndexLists members;
  if (in_order) members = GroupByShard(unique_ids);
  if (!options.found) FindAll(unique_ids, refs, parallel);
  std::vector<int64_t> missing;
  for (int64_t i = 0; i < unique_ids.size(); ++i) {
    if (!refs[i].found()) missing.push_back(i);
    if (resident != nullptr) resident[i] = refs[i].found();
  }
  if (options.insert) {
    InsertOptions insert;
    insert.now = now;
    insert.count = options.count;
    insert.admission = true;
    insert.before_commit = options.before_commit;
    LODESTAR_RETURN_IF_ERROR(InsertMissing(
        unique_ids, missing, insert, refs, parallel,
        [&](int64_t i, const RowRef& ref) { FillNewRow(unique_ids[i], ref); }));
  } else if (options.before_commit != nullptr) {
    LODESTAR_RETURN_IF_ERROR((*options.before_commit)());
  }
  if (in_order) {
    TouchInOrder(unique_ids, members, refs, now, parallel);
  } else if (options.count) {
    Touch(unique_ids, refs, now, parallel);
  }
  misses_.fetch_add(missing.size(), std::memory_order_relaxed);
  hits_.fetch_add(unique_ids.size() - missing.size(),
                  std::memory_order_relaxed);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the rows of ", unique_ids.size(),
                           " ids");
}

void EmbeddingStore::Frequency(Span<const int64_t> ids,
                               Span<int64_t> frequencies,
                               const ParallelFor* parallel) const {
  RunParallel(parallel, ids.size(), 40, [&](int64_t begin, int64_t end) {
    ForEachRun(ids.subspan(begin, end - begin), LoadMeta,
               [&](int64_t first, Span<const int64_t> run, Probe* probes) {
                 for (int i = 0; i < run.size(); ++i) {
                   const RowRef ref = Confirm(run[i], probes + i);
                   frequencies[begin + first + i] =
                       ref.found()
                           ? ref.meta->frequency.load(std::memory_order_relaxed)
                           : 0;
                 }
               });
  });
}

}  // namespace lodestar
