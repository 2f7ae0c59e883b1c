// What EmbeddingStore tells about itself.

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

EmbeddingStats EmbeddingStore::Stats() const {
  EmbeddingStats stats;
  const auto relaxed = std::memory_order_relaxed;
  stats.ids = ids_.load(relaxed);
  stats.unique_ids = unique_ids_.load(relaxed);
  stats.padding = padding_.load(relaxed);
  stats.hits = hits_.load(relaxed);
  stats.misses = misses_.load(relaxed);
  stats.inserts = inserts_.load(relaxed);
  stats.admitted = admitted_.load(relaxed);
  stats.refused = refused_.load(relaxed);
  stats.evicted = evicted_.load(relaxed);
  stats.removed = removed_.load(relaxed);
  stats.gradients_dropped = gradients_dropped_.load(relaxed);
  stats.nonfinite_gradients = nonfinite_gradients_.load(relaxed);
  stats.rows = size();
  stats.max_rows = policies_.eviction.max_rows;
  for (const auto& shard : shards_) {
    std::lock_guard<std::mutex> lock(shard->mutex);
    const RowStore& rows = shard->rows;
    int64_t policy_bytes = 0;
    if (shard->order != nullptr) policy_bytes += shard->order->bytes();
    if (shard->pending != nullptr) {
      stats.pending += shard->pending->size();
      policy_bytes += shard->pending->bytes();
    }
    stats.policy_bytes += policy_bytes;
    stats.index_bytes += shard->index.bytes();
    stats.row_bytes += rows.row_bytes();
    stats.slot_bytes += rows.slot_bytes();
    stats.capacity += rows.capacity();
    stats.shards.push_back({rows.live(), BytesOf(*shard)});
  }
  if (sketch_ != nullptr) {
    std::lock_guard<std::mutex> lock(sketch_mutex_);
    stats.policy_bytes += sketch_->counters().size();
  }
  if (shared_ != nullptr) {
    const EmbeddingStats shared = shared_->Stats();
    stats.policy_bytes +=
        shared.index_bytes + shared.row_bytes + shared.slot_bytes;
  }
  return stats;
}

void EmbeddingStore::SubtractEvents(const EmbeddingStats& stats) {
  const auto relaxed = std::memory_order_relaxed;
  ids_.fetch_sub(stats.ids, relaxed);
  unique_ids_.fetch_sub(stats.unique_ids, relaxed);
  padding_.fetch_sub(stats.padding, relaxed);
  hits_.fetch_sub(stats.hits, relaxed);
  misses_.fetch_sub(stats.misses, relaxed);
  inserts_.fetch_sub(stats.inserts, relaxed);
  admitted_.fetch_sub(stats.admitted, relaxed);
  refused_.fetch_sub(stats.refused, relaxed);
  evicted_.fetch_sub(stats.evicted, relaxed);
  removed_.fetch_sub(stats.removed, relaxed);
  gradients_dropped_.fetch_sub(stats.gradients_dropped, relaxed);
  nonfinite_gradients_.fetch_sub(stats.nonfinite_gradients, relaxed);
}

void EmbeddingStore::CopyEvents(const EmbeddingStore& like) {
  for (auto event : {&EmbeddingStore::ids_, &EmbeddingStore::unique_ids_,
                     &EmbeddingStore::padding_, &EmbeddingStore::hits_,
                     &EmbeddingStore::misses_, &EmbeddingStore::inserts_,
                     &EmbeddingStore::removed_, &EmbeddingStore::admitted_,
                     &EmbeddingStore::refused_, &EmbeddingStore::evicted_,
                     &EmbeddingStore::gradients_dropped_,
                     &EmbeddingStore::nonfinite_gradients_}) {
    (this->*event)
        .store((like.*event).load(std::memory_order_relaxed),
               std::memory_order_relaxed);
  }
}

Status EmbeddingStore::Inspect(Span<const int64_t> ids, InspectedIds* out) const
    try {
  ShardLocks locks(*this);
  const int64_t count = ids.size();
  const int64_t num_slots = optimizer_.slot_inits.size();
  InspectedIds result;
  result.slot_names = optimizer_.slot_names;
  result.values.Resize(type_, count * dim_);
  result.slots.Resize(ComputeType(type_), num_slots * count * dim_);
  result.frequencies.resize(count);
  result.last_seen.resize(count, -1);
  result.shards.resize(count);
  result.states.resize(count, InspectedIds::kMissing);
  for (int64_t i = 0; i < count; ++i) {
    const Place place = PlaceOf(ids[i]);
    const Shard& shard = *shards_[place.shard];
    result.shards[i] = place.shard;
    const uint32_t row = FindRow(shard, place.tag, ids[i]);
    if (row != LeafIndex::kNoRow) {
      const RowStore& rows = shard.rows;
      rows.Lock(row, ids[i]);
      CopyRowOut(rows.values(row), row_bytes_, result.values.at(i * dim_));
      for (int64_t s = 0; s < num_slots; ++s) {
        std::memcpy(result.slots.at((s * count + i) * dim_),
                    rows.slot(row, static_cast<int>(s)), slot_bytes_);
      }
      const RowMeta* meta = rows.meta(row);
      result.frequencies[i] = meta->frequency.load(std::memory_order_relaxed);
      result.last_seen[i] = meta->last_seen.load(std::memory_order_relaxed);
      rows.UnlockUnchanged(row);
      result.states[i] = InspectedIds::kResident;
      continue;
    }
    if (shard.pending == nullptr) continue;
    const uint32_t entry = shard.pending->Find(place.tag, ids[i]);
    if (entry != LeafIndex::kNoRow) {
      result.frequencies[i] = shard.pending->sightings(entry);
      result.last_seen[i] = shard.pending->last_seen(entry);
    } else if (sketch_ != nullptr) {
      std::lock_guard<std::mutex> lock(sketch_mutex_);
      result.frequencies[i] = sketch_->Estimate(ids[i]);
    }
    if (result.frequencies[i] > 0) result.states[i] = InspectedIds::kPending;
  }
  *out = std::move(result);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while ", ids.size(),
                           " ids are inspected");
}

}  // namespace lodestar
