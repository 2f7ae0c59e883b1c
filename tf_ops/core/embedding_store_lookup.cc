#include <algorithm>
#include <limits>
#include <new>
#include <vector>

#include "tf_ops/core/embedding_run.h"
#include "tf_ops/core/embedding_store.h"
#include "tf_ops/core/guards.h"
#include "tf_ops/core/hash.h"

namespace lodestar {

EmbeddingStore::Place EmbeddingStore::PlaceOf(int64_t id) const {
  const uint64_t hash = Mix64(static_cast<uint64_t>(id));
  return {FastRange32(static_cast<uint32_t>(hash >> 32),
                      static_cast<uint32_t>(shards_.size())),
          static_cast<uint32_t>(hash)};
}

uint32_t EmbeddingStore::FindRow(const Shard& shard, uint32_t tag,
                                 int64_t id) const {
  LeafIndex::Cursor cursor = shard.index.Begin(tag);
  while (true) {
    const uint32_t row = LeafIndex::Next(tag, &cursor);
    if (row == LeafIndex::kNoRow) return row;
    if (shard.rows.meta(row)->id.load(std::memory_order_relaxed) == id &&
        shard.rows.resident(row)) {
      return row;
    }
  }
}

void EmbeddingStore::FindRun(Span<const int64_t> ids, RowRef* refs) const {
  EpochDomain::Guard guard(&epochs_);
  Place places[kRun];
  LeafIndex::Cursor cursors[kRun];
  const int count = static_cast<int>(ids.size());
  for (int i = 0; i < count; ++i) {
    places[i] = PlaceOf(ids[i]);
    cursors[i] = shards_[places[i].shard]->index.Begin(places[i].tag);
    LeafIndex::Prefetch(cursors[i]);
  }
  for (int i = 0; i < count; ++i) {
    const Shard& shard = *shards_[places[i].shard];
    refs[i] = {places[i].shard, LeafIndex::Next(places[i].tag, &cursors[i])};
    if (refs[i].found()) {
      __builtin_prefetch(shard.rows.meta(refs[i].row));
      PrefetchRow(shard.rows.values(refs[i].row), dim_);
    }
  }
  for (int i = 0; i < count; ++i) {
    const Shard& shard = *shards_[places[i].shard];
    while (refs[i].found()) {
      const RowMeta* meta = shard.rows.meta(refs[i].row);
      if (meta->id.load(std::memory_order_relaxed) == ids[i] &&
          shard.rows.resident(refs[i].row)) {
        break;
      }
      refs[i].row = LeafIndex::Next(places[i].tag, &cursors[i]);
    }
  }
}

void EmbeddingStore::FindAll(Span<const int64_t> ids, Span<RowRef> refs,
                             const ParallelFor* parallel) const {
  RunParallel(parallel, ids.size(), 40, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kRun) {
      const int64_t count = std::min<int64_t>(kRun, end - i);
      FindRun(ids.subspan(i, count), refs.data() + i);
    }
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
  }
}

void EmbeddingStore::ReadRow(const RowRef& ref, int64_t id,
                             const Missing& missing, float* row) const {
  if (ref.found()) {
    const Shard& shard = *shards_[ref.shard];
    if (shard.rows.Read(ref.row, id, row)) return;
    // The row went away since it was found; the id may have another now.
    EpochDomain::Guard guard(&epochs_);
    const uint32_t again = FindRow(shard, PlaceOf(id).tag, id);
    if (again != LeafIndex::kNoRow && shard.rows.Read(again, id, row)) return;
  }
  ReadMissing(id, missing, row);
}

void EmbeddingStore::Prefetch(const RowRef& ref) const {
  if (!ref.found()) return;
  const RowStore& rows = shards_[ref.shard]->rows;
  __builtin_prefetch(rows.meta(ref.row));
  PrefetchRow(rows.values(ref.row), dim_);
}

void EmbeddingStore::Find(Span<const int64_t> ids, const int64_t* padding_id,
                          const Missing& missing, float* rows, bool* found,
                          const ParallelFor* parallel) const {
  const auto body = [&](int64_t begin, int64_t end) {
    RowRef refs[kRun];
    for (int64_t i = begin; i < end; i += kRun) {
      const int64_t count = std::min<int64_t>(kRun, end - i);
      FindRun(ids.subspan(i, count), refs);
      for (int64_t j = 0; j < count; ++j) {
        const int64_t id = ids[i + j];
        float* row = rows + (i + j) * dim_;
        const bool padding = padding_id != nullptr && id == *padding_id;
        if (padding) {
          std::fill_n(row, dim_, 0.0f);
        } else {
          ReadRow(refs[j], id, missing, row);
        }
        if (found != nullptr) found[i + j] = refs[j].found() && !padding;
      }
    }
  };
  RunParallel(parallel, ids.size(), RowCost(dim_), body);
}

void EmbeddingStore::Touch(Span<const int64_t> ids, Span<const RowRef> refs,
                           const ParallelFor* parallel) {
  const int64_t now = step();
  const auto is_counted = [&](const RowMeta* meta) {
    return GuardHolds(StoreGuard::kSightingSet) &&
           meta->last_seen.load(std::memory_order_relaxed) == now &&
           meta->frequency.load(std::memory_order_relaxed) != 0;
  };
  RunParallel(parallel, ids.size(), 20, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (!refs[i].found()) continue;
      const RowStore& rows = shards_[refs[i].shard]->rows;
      RowMeta* meta = rows.meta(refs[i].row);
      if (is_counted(meta) || !rows.Lock(refs[i].row, ids[i])) continue;
      if (!is_counted(meta)) {
        const uint32_t frequency =
            meta->frequency.load(std::memory_order_relaxed);
        meta->last_seen.store(now, std::memory_order_relaxed);
        if (frequency != std::numeric_limits<uint32_t>::max()) {
          meta->frequency.store(frequency + 1, std::memory_order_relaxed);
        }
      }
      rows.Unlock(refs[i].row);
    }
  });
}

Status EmbeddingStore::FindOrInsert(Span<const int64_t> unique_ids,
                                    const SightingOptions& options,
                                    Span<RowRef> refs,
                                    const ParallelFor* parallel,
                                    char* resident) try {
  FindAll(unique_ids, refs, parallel);
  std::vector<int64_t> missing;
  for (int64_t i = 0; i < unique_ids.size(); ++i) {
    if (!refs[i].found()) missing.push_back(i);
    if (resident != nullptr) resident[i] = refs[i].found();
  }
  if (options.insert) {
    LODESTAR_RETURN_IF_ERROR(InsertMissing(
        unique_ids, missing, step(), options.count ? 1 : 0, refs, parallel,
        [&](int64_t i, const RowRef& ref) { FillNewRow(unique_ids[i], ref); }));
  }
  if (options.count) Touch(unique_ids, refs, parallel);
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
    RowRef refs[kRun];
    for (int64_t i = begin; i < end; i += kRun) {
      const int64_t count = std::min<int64_t>(kRun, end - i);
      FindRun(ids.subspan(i, count), refs);
      for (int64_t j = 0; j < count; ++j) {
        frequencies[i + j] =
            refs[j].found() ? shards_[refs[j].shard]
                                  ->rows.meta(refs[j].row)
                                  ->frequency.load(std::memory_order_relaxed)
                            : 0;
      }
    }
  });
}

}  // namespace lodestar
