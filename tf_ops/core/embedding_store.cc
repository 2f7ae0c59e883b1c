#include "tf_ops/core/embedding_store.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "tf_ops/core/batch_unique.h"
#include "tf_ops/core/embedding_run.h"
#include "tf_ops/core/guards.h"

namespace lodestar {

EmbeddingStore::ShardLocks::ShardLocks(const EmbeddingStore& store) {
  locks_.reserve(store.shards_.size());
  for (const auto& shard : store.shards_) locks_.emplace_back(shard->mutex);
}

EmbeddingStore::ShardLocks::ShardLocks(const EmbeddingStore& store,
                                       const std::vector<int64_t>& counts) {
  locks_.reserve(counts.size());
  for (size_t s = 0; s < counts.size(); ++s) {
    if (counts[s] > 0) locks_.emplace_back(store.shards_[s]->mutex);
  }
}

Status EmbeddingStore::Create(int64_t dim, int64_t num_shards,
                              const RowInitializer& initializer,
                              std::unique_ptr<EmbeddingStore>* out) try {
  if (dim < 1 || dim > kMaxDim) {
    return InvalidArgument("`dim` is ", dim, ", wanted 1 to ", kMaxDim);
  }
  if (num_shards < 1 || num_shards > 4096) {
    return InvalidArgument("`num_shards` is ", num_shards,
                           ", wanted 1 to 4096");
  }
  out->reset(new EmbeddingStore(static_cast<int>(dim),
                                static_cast<int>(num_shards), initializer));
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for a table of ", num_shards,
                           " shards");
}

EmbeddingStore::EmbeddingStore(int dim, int num_shards,
                               const RowInitializer& initializer)
    : dim_(dim), initializer_(initializer) {
  for (int s = 0; s < num_shards; ++s) {
    shards_.push_back(std::make_unique<Shard>(dim, &arena_, &epochs_));
  }
}

void EmbeddingStore::FillSlots(const RowRef& ref) const {
  const RowStore& rows = shards_[ref.shard]->rows;
  for (size_t s = 0; s < optimizer_.slot_inits.size(); ++s) {
    std::fill_n(rows.slot(ref.row, static_cast<int>(s)), dim_,
                optimizer_.slot_inits[s]);
  }
}

void EmbeddingStore::FillNewRow(int64_t id, const RowRef& ref) const {
  const RowStore& rows = shards_[ref.shard]->rows;
  float row[kMaxDim];
  initializer_.Draw(id, dim_, row);
  CopyRowIn(row, dim_, rows.values(ref.row));
  FillSlots(ref);
}

Status EmbeddingStore::InsertMissing(Span<const int64_t> ids,
                                     const std::vector<int64_t>& indices,
                                     int64_t last_seen, uint32_t frequency,
                                     Span<RowRef> refs,
                                     const ParallelFor* parallel,
                                     const Fill& fill,
                                     const AttachedOptimizer* optimizer) {
  const auto attaches = [&] {
    return optimizer != nullptr && !attached_.load(std::memory_order_acquire);
  };
  const bool lock_all = attaches();
  if (indices.empty() && !lock_all) return Status();
  const int64_t num_shards = static_cast<int64_t>(shards_.size());
  std::vector<std::vector<int64_t>> new_rows(num_shards);
  std::vector<std::vector<uint32_t>> tags(num_shards);
  std::vector<int64_t> counts(num_shards, lock_all ? 1 : 0);
  for (int64_t i : indices) ++counts[PlaceOf(ids[i]).shard];
  for (int64_t s = 0; s < num_shards; ++s) {
    new_rows[s].reserve(counts[s]);
    tags[s].reserve(counts[s]);
  }
  ShardLocks locks(*this, counts);
  AttachedOptimizer attached;
  if (lock_all && attaches()) {
    attached = *optimizer;
    LODESTAR_RETURN_IF_ERROR(ReserveOptimizer(attached));
  } else if (lock_all) {
    // Another call was first.
    LODESTAR_RETURN_IF_ERROR(CheckOptimizer(optimizer->name));
  }
  for (int64_t i : indices) {
    const Place place = PlaceOf(ids[i]);
    // Another call may have made it since it was looked for.
    const uint32_t row = FindRow(*shards_[place.shard], place.tag, ids[i]);
    if (row != LeafIndex::kNoRow) {
      refs[i] = {place.shard, row};
    } else {
      new_rows[place.shard].push_back(i);
      tags[place.shard].push_back(place.tag);
    }
  }
  const auto commit = [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      Shard& shard = *shards_[s];
      for (size_t k = 0; k < new_rows[s].size(); ++k) {
        const int64_t i = new_rows[s][k];
        refs[i] = {static_cast<uint32_t>(s), shard.rows.Allocate()};
        fill(i, refs[i]);
        shard.rows.Publish(refs[i].row, ids[i], last_seen, frequency);
        shard.index.Insert(tags[s][k], refs[i].row);
      }
    }
  };
  int64_t total = 0;
  for (int64_t s = 0; s < num_shards; ++s) {
    if (new_rows[s].empty()) continue;
    LODESTAR_RETURN_IF_ERROR(shards_[s]->rows.Reserve(new_rows[s].size()));
    LODESTAR_RETURN_IF_ERROR(shards_[s]->index.Reserve(tags[s]));
    total += new_rows[s].size();
    if (!GuardHolds(StoreGuard::kReservePhase)) commit(s, s + 1);
  }
  // Nothing from here on can fail.
  if (!attached.name.empty()) Attach(std::move(attached));
  if (GuardHolds(StoreGuard::kReservePhase)) {
    RunParallel(parallel, num_shards,
                total / num_shards * RowCost(2 * dim_) + 1, commit);
  }
  size_.fetch_add(total, std::memory_order_relaxed);
  inserts_.fetch_add(total, std::memory_order_relaxed);
  return Status();
}

Status EmbeddingStore::InsertOrAssign(Span<const int64_t> ids,
                                      const float* rows,
                                      const ParallelFor* parallel) try {
  std::vector<int64_t> unique;
  std::vector<int64_t> positions(ids.size());
  BatchUnique(ids, nullptr, &unique, positions);
  std::vector<const float*> values(unique.size());
  for (int64_t i = 0; i < ids.size(); ++i) {
    values[positions[i]] = rows + i * dim_;
  }
  std::vector<RowRef> refs(unique.size());
  FindAll(unique, refs, parallel);
  std::vector<int64_t> missing;
  for (size_t i = 0; i < unique.size(); ++i) {
    if (!refs[i].found()) missing.push_back(i);
  }
  std::vector<char> inserted(unique.size(), 0);
  LODESTAR_RETURN_IF_ERROR(InsertMissing(
      unique, missing, step(), 0, refs, parallel,
      [&](int64_t i, const RowRef& ref) {
        CopyRowIn(values[i], dim_, shards_[ref.shard]->rows.values(ref.row));
        FillSlots(ref);
        inserted[i] = 1;
      }));
  RunParallel(parallel, unique.size(), RowCost(dim_),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  if (inserted[i]) continue;
                  const RowStore& store = shards_[refs[i].shard]->rows;
                  // Not there any more: removed after this call, in effect.
                  if (!store.Lock(refs[i].row, unique[i])) continue;
                  CopyRowIn(values[i], dim_, store.values(refs[i].row));
                  store.Unlock(refs[i].row);
                }
              });
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for ", ids.size(), " rows to assign");
}

Status EmbeddingStore::Remove(Span<const int64_t> ids, int64_t* removed) try {
  *removed = 0;
  std::vector<int64_t> counts(shards_.size(), 0);
  for (int64_t id : ids) ++counts[PlaceOf(id).shard];
  ShardLocks locks(*this, counts);
  for (size_t s = 0; s < shards_.size(); ++s) {
    if (counts[s] == 0) continue;
    LODESTAR_RETURN_IF_ERROR(shards_[s]->rows.ReserveFree(counts[s]));
  }
  for (int64_t id : ids) {
    const Place place = PlaceOf(id);
    Shard& shard = *shards_[place.shard];
    const uint32_t row = FindRow(shard, place.tag, id);
    if (row == LeafIndex::kNoRow) continue;
    shard.rows.Free(row);
    shard.index.Remove(place.tag, row);
    ++*removed;
  }
  size_.fetch_sub(*removed, std::memory_order_relaxed);
  removed_.fetch_add(*removed, std::memory_order_relaxed);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while ", ids.size(),
                           " rows are removed");
}

Status EmbeddingStore::Clear() try {
  ShardLocks locks(*this);
  for (const auto& shard : shards_) {
    LeafIndex empty(&epochs_);
    shard->rows.FreeAll();
    shard->index.Replace(&empty);
  }
  removed_.fetch_add(size_.exchange(0), std::memory_order_relaxed);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while the table is cleared");
}

EmbeddingStats EmbeddingStore::Stats() const {
  EmbeddingStats stats;
  stats.rows = size();
  stats.hits = hits_.load(std::memory_order_relaxed);
  stats.misses = misses_.load(std::memory_order_relaxed);
  stats.inserts = inserts_.load(std::memory_order_relaxed);
  stats.removed = removed_.load(std::memory_order_relaxed);
  stats.gradients_dropped = gradients_dropped_.load(std::memory_order_relaxed);
  stats.nonfinite_gradients =
      nonfinite_gradients_.load(std::memory_order_relaxed);
  stats.shards = static_cast<int64_t>(shards_.size());
  for (const auto& shard : shards_) {
    std::lock_guard<std::mutex> lock(shard->mutex);
    stats.index_bytes += shard->index.bytes();
    stats.row_bytes += shard->rows.row_bytes();
    stats.slot_bytes += shard->rows.slot_bytes();
    stats.capacity += shard->rows.capacity();
  }
  return stats;
}

}  // namespace lodestar
