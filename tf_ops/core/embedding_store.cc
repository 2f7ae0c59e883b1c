#include "tf_ops/core/embedding_store.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "tf_ops/core/batch_unique.h"
#include "tf_ops/core/hash.h"

namespace lodestar {
namespace {

// Ids probed together: enough misses in flight to hide memory, few enough to
// stay in the first cache.
constexpr int kRun = 32;

void PrefetchRow(const float* row, int dim) {
  const char* begin = reinterpret_cast<const char*>(row);
  const int64_t bytes = std::min<int64_t>(dim * sizeof(float), 512);
  for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(begin + b);
}

// A guess of the nanoseconds to find and copy one row.
int64_t RowCost(int dim) { return 40 + dim; }

}  // namespace

EmbeddingStore::ShardLocks::ShardLocks(const EmbeddingStore& store) {
  for (const auto& shard : store.shards_) locks_.emplace_back(shard->mutex);
}

EmbeddingStore::ShardLocks::ShardLocks(const EmbeddingStore& store,
                                       const std::vector<int64_t>& counts) {
  for (size_t s = 0; s < counts.size(); ++s) {
    if (counts[s] > 0) locks_.emplace_back(store.shards_[s]->mutex);
  }
}

Status EmbeddingStore::Create(int64_t dim, int64_t num_shards,
                              const RowInitializer& initializer,
                              std::unique_ptr<EmbeddingStore>* out) {
  if (dim < 1 || dim > 65536) {
    return InvalidArgument("`dim` is ", dim, ", wanted 1 to 65536");
  }
  if (num_shards < 1 || num_shards > 4096) {
    return InvalidArgument("`num_shards` is ", num_shards,
                           ", wanted 1 to 4096");
  }
  out->reset(new EmbeddingStore(static_cast<int>(dim),
                                static_cast<int>(num_shards), initializer));
  return Status();
}

EmbeddingStore::EmbeddingStore(int dim, int num_shards,
                               const RowInitializer& initializer)
    : dim_(dim), initializer_(initializer) {
  for (int s = 0; s < num_shards; ++s) {
    shards_.push_back(std::make_unique<Shard>(dim, &arena_, &epochs_));
  }
}

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

void EmbeddingStore::FillSlots(const RowRef& ref) const {
  const RowStore& rows = shards_[ref.shard]->rows;
  for (size_t s = 0; s < optimizer_.slot_inits.size(); ++s) {
    std::fill_n(rows.slot(ref.row, static_cast<int>(s)), dim_,
                optimizer_.slot_inits[s]);
  }
}

void EmbeddingStore::FillNewRow(int64_t id, const RowRef& ref) const {
  const RowStore& rows = shards_[ref.shard]->rows;
  float buffer[256];
  if (dim_ <= 256) {
    initializer_.Draw(id, dim_, buffer);
    CopyRowIn(buffer, dim_, rows.values(ref.row));
  } else {
    std::vector<float> row(dim_);
    initializer_.Draw(id, dim_, row.data());
    CopyRowIn(row.data(), dim_, rows.values(ref.row));
  }
  FillSlots(ref);
}

Status EmbeddingStore::InsertMissing(Span<const int64_t> ids,
                                     const std::vector<int64_t>& indices,
                                     int64_t last_seen, uint32_t frequency,
                                     Span<RowRef> refs,
                                     const ParallelFor* parallel,
                                     const Fill& fill) {
  if (indices.empty()) return Status();
  const int64_t num_shards = static_cast<int64_t>(shards_.size());
  std::vector<std::vector<int64_t>> new_rows(num_shards);
  std::vector<std::vector<uint32_t>> tags(num_shards);
  std::vector<int64_t> counts(num_shards, 0);
  for (int64_t i : indices) ++counts[PlaceOf(ids[i]).shard];
  for (int64_t s = 0; s < num_shards; ++s) {
    new_rows[s].reserve(counts[s]);
    tags[s].reserve(counts[s]);
  }
  ShardLocks locks(*this, counts);
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
  int64_t total = 0;
  for (int64_t s = 0; s < num_shards; ++s) {
    if (new_rows[s].empty()) continue;
    LODESTAR_RETURN_IF_ERROR(shards_[s]->rows.Reserve(new_rows[s].size()));
    LODESTAR_RETURN_IF_ERROR(shards_[s]->index.Reserve(tags[s]));
    total += new_rows[s].size();
  }
  RunParallel(parallel, num_shards, total / num_shards * RowCost(2 * dim_) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t s = begin; s < end; ++s) {
                  Shard& shard = *shards_[s];
                  for (size_t k = 0; k < new_rows[s].size(); ++k) {
                    const int64_t i = new_rows[s][k];
                    refs[i] = {static_cast<uint32_t>(s), shard.rows.Allocate()};
                    fill(i, refs[i]);
                    shard.rows.Publish(refs[i].row, ids[i], last_seen,
                                       frequency);
                    shard.index.Insert(tags[s][k], refs[i].row);
                  }
                }
              });
  size_.fetch_add(total, std::memory_order_relaxed);
  inserts_.fetch_add(total, std::memory_order_relaxed);
  return Status();
}

void EmbeddingStore::Touch(Span<const int64_t> ids, Span<const RowRef> refs,
                           const ParallelFor* parallel) {
  const int64_t now = step();
  RunParallel(parallel, ids.size(), 20, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (!refs[i].found()) continue;
      const RowStore& rows = shards_[refs[i].shard]->rows;
      RowMeta* meta = rows.meta(refs[i].row);
      if (meta->last_seen.load(std::memory_order_relaxed) == now &&
          meta->frequency.load(std::memory_order_relaxed) != 0) {
        continue;
      }
      if (!rows.Lock(refs[i].row, ids[i])) continue;
      const uint32_t frequency =
          meta->frequency.load(std::memory_order_relaxed);
      if (meta->last_seen.load(std::memory_order_relaxed) != now ||
          frequency == 0) {
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
                                    const ParallelFor* parallel) {
  FindAll(unique_ids, refs, parallel);
  std::vector<int64_t> missing;
  for (int64_t i = 0; i < unique_ids.size(); ++i) {
    if (!refs[i].found()) missing.push_back(i);
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
}

Status EmbeddingStore::CheckOptimizer(const std::string& name) const {
  std::lock_guard<std::mutex> lock(optimizer_mutex_);
  if (optimizer_.name.empty() || optimizer_.name == name) return Status();
  return Status(
      StatusCode::kFailedPrecondition,
      StrCat("the table holds the optimizer slots of '", optimizer_.name,
             "', but '", name, "' is to be applied"));
}

Status EmbeddingStore::AttachLocked(const AttachedOptimizer& optimizer) {
  for (const auto& shard : shards_) {
    LODESTAR_RETURN_IF_ERROR(shard->rows.AttachSlots(optimizer.slot_inits));
  }
  std::lock_guard<std::mutex> lock(optimizer_mutex_);
  optimizer_ = optimizer;
  attached_.store(!optimizer.name.empty(), std::memory_order_release);
  return Status();
}

Status EmbeddingStore::Attach(const std::string& name,
                              Span<const float> slot_inits) {
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(name));
  if (attached_.load(std::memory_order_acquire)) return Status();
  ShardLocks locks(*this);
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(name));
  if (attached_.load(std::memory_order_acquire)) return Status();
  AttachedOptimizer optimizer;
  optimizer.name = name;
  if (!SparseOptimizer::SlotNames(name, &optimizer.slot_names)) {
    return InvalidArgument("unknown optimizer '", name, "'");
  }
  optimizer.slot_inits.assign(slot_inits.begin(), slot_inits.end());
  return AttachLocked(optimizer);
}

Status EmbeddingStore::Apply(Span<const int64_t> unique_ids,
                             const float* gradients, const std::string& name,
                             const SparseOptimizer& optimizer,
                             Span<const float> slot_inits, bool create_missing,
                             int64_t next_step, const ParallelFor* parallel) {
  if (slot_inits.size() != optimizer.num_slots()) {
    return InvalidArgument("`slot_inits` has ", slot_inits.size(),
                           " numbers, but '", name, "' has ",
                           optimizer.num_slots(), " optimizer slots");
  }
  LODESTAR_RETURN_IF_ERROR(Attach(name, slot_inits));
  std::vector<RowRef> refs(unique_ids.size());
  FindAll(unique_ids, refs, parallel);
  if (create_missing) {
    std::vector<int64_t> missing;
    for (int64_t i = 0; i < unique_ids.size(); ++i) {
      if (!refs[i].found()) missing.push_back(i);
    }
    LODESTAR_RETURN_IF_ERROR(InsertMissing(
        unique_ids, missing, step(), 0, refs, parallel,
        [&](int64_t i, const RowRef& ref) { FillNewRow(unique_ids[i], ref); }));
  }
  const int num_slots = optimizer.num_slots();
  const auto body = [&](int64_t begin, int64_t end) {
    constexpr int64_t kAhead = 8;
    std::vector<float> value(dim_);
    int64_t dropped = 0;
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end && refs[i + kAhead].found()) {
        const RowRef& ahead = refs[i + kAhead];
        const RowStore& rows = shards_[ahead.shard]->rows;
        __builtin_prefetch(rows.meta(ahead.row), 1);
        PrefetchRow(rows.values(ahead.row), dim_);
        for (int s = 0; s < num_slots; ++s) {
          PrefetchRow(rows.slot(ahead.row, s), dim_);
        }
      }
      RowRef ref = refs[i];
      const RowStore& rows = shards_[ref.shard]->rows;
      bool held = ref.found() && rows.Lock(ref.row, unique_ids[i]);
      while (!held && ref.found()) {
        // Gone since it was found: to the row that the id has now, if any.
        EpochDomain::Guard guard(&epochs_);
        ref.row = FindRow(*shards_[ref.shard], PlaceOf(unique_ids[i]).tag,
                          unique_ids[i]);
        held = ref.found() && rows.Lock(ref.row, unique_ids[i]);
      }
      if (!held) {
        ++dropped;
        continue;
      }
      float* row = rows.values(ref.row);
      float* slots[RowStore::kMaxSlots];
      for (int s = 0; s < num_slots; ++s) slots[s] = rows.slot(ref.row, s);
      CopyRowOut(row, dim_, value.data());
      optimizer.Update(gradients + i * dim_, dim_, value.data(), slots);
      CopyRowIn(value.data(), dim_, row);
      rows.Unlock(ref.row);
    }
    if (dropped > 0) {
      gradients_dropped_.fetch_add(dropped, std::memory_order_relaxed);
    }
  };
  RunParallel(parallel, unique_ids.size(), RowCost(dim_ * (2 + num_slots)),
              body);
  if (next_step < 0) {
    step_.fetch_add(1, std::memory_order_relaxed);
  } else {
    SetStep(next_step);
  }
  return Status();
}

Status EmbeddingStore::InsertOrAssign(Span<const int64_t> ids,
                                      const float* rows,
                                      const ParallelFor* parallel) {
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
}

Status EmbeddingStore::Remove(Span<const int64_t> ids, int64_t* removed) {
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
}

Status EmbeddingStore::Clear() {
  ShardLocks locks(*this);
  for (const auto& shard : shards_) {
    LeafIndex empty(&epochs_);
    shard->rows.FreeAll();
    shard->index.Replace(&empty);
  }
  removed_.fetch_add(size_.exchange(0), std::memory_order_relaxed);
  return Status();
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
