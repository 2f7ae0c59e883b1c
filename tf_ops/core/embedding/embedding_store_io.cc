// EmbeddingStore's export and import.

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

Status CheckSize(const char* name, int64_t found, int64_t wanted) {
  if (found == wanted) return Status();
  return InvalidArgument("`", name, "` has ", found, " numbers, wanted ",
                         wanted);
}

Status CheckDistinct(const char* name, Span<const int64_t> ids) {
  std::vector<int64_t> unique;
  std::vector<int64_t> positions(ids.size());
  BatchUnique(ids, nullptr, &unique, positions);
  for (int64_t i = 0; i < ids.size(); ++i) {
    // The first repeat is the first place that falls behind.
    if (positions[i] != i) {
      return InvalidArgument("`", name, "` holds ", ids[i], " twice, at ",
                             positions[i], " and ", i);
    }
  }
  return Status();
}

}  // namespace

Status EmbeddingStore::Export(bool with_slots, EmbeddingRows* out,
                              const ParallelFor* parallel,
                              bool with_values) const try {
  // Rows stay where they are; updates go on.
  ShardLocks locks(*this);
  EmbeddingRows result;
  result.step = step();
  result.seed = initializer_.seed();
  result.salt = initializer_.salt();
  result.own_step = own_step_.load(std::memory_order_relaxed);
  if (with_slots && with_values) result.optimizer = optimizer_;
  const int64_t num_slots = result.optimizer.slot_inits.size();
  std::vector<std::pair<int64_t, RowRef>> order;
  order.reserve(size());
  for (size_t s = 0; s < shards_.size(); ++s) {
    const RowStore& rows = shards_[s]->rows;
    for (uint32_t row = 0; row < rows.high_water(); ++row) {
      if (!rows.resident(row)) continue;
      order.push_back({rows.meta(row)->id.load(std::memory_order_relaxed),
                       RefTo(static_cast<uint32_t>(s), row)});
    }
  }
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  result.ids.resize(order.size());
  if (!with_values) {
    for (size_t i = 0; i < order.size(); ++i) result.ids[i] = order[i].first;
    order.clear();
  }
  result.values.Resize(type_, order.size() * dim_);
  result.slots.Resize(ComputeType(type_), order.size() * dim_ * num_slots);
  result.frequencies.resize(order.size());
  result.last_seen.resize(order.size());
  const int64_t count = static_cast<int64_t>(order.size());
  RunParallel(parallel, count, 100 + dim_, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = order[i].first;
      const RowRef ref = order[i].second;
      const RowStore& rows = shards_[ref.shard]->rows;
      rows.Lock(ref.row, id);
      result.ids[i] = id;
      CopyRowOut(rows.values(ref.row), row_bytes_, result.values.at(i * dim_));
      for (int64_t s = 0; s < num_slots; ++s) {
        std::memcpy(result.slots.at((s * count + i) * dim_),
                    rows.slot(ref.row, static_cast<int>(s)), slot_bytes_);
      }
      const RowMeta* meta = rows.meta(ref.row);
      result.frequencies[i] = meta->frequency.load(std::memory_order_relaxed);
      result.last_seen[i] = meta->last_seen.load(std::memory_order_relaxed);
      rows.UnlockUnchanged(ref.row);
    }
  });
  ExportPending(&result);
  ExportShared(&result);
  *out = std::move(result);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while ", size(),
                           " rows are exported");
}

void EmbeddingStore::ExportPending(EmbeddingRows* out) const {
  if (!UsesAdmission()) return;
  struct Entry {
    int64_t id;
    int64_t sightings;
    int64_t last_seen;
  };
  std::vector<Entry> entries;
  for (const auto& shard : shards_) {
    shard->pending->ForEach(
        [&](int64_t id, uint32_t sightings, int64_t last_seen) {
          // A sketch counts for itself but within a step.
          if (sketch_ != nullptr && last_seen != out->step) return;
          entries.push_back({id, sightings, last_seen});
        });
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.id < b.id; });
  for (const Entry& entry : entries) {
    out->pending_ids.push_back(entry.id);
    out->pending_sightings.push_back(entry.sightings);
    out->pending_last_seen.push_back(entry.last_seen);
  }
  if (sketch_ == nullptr) return;
  std::lock_guard<std::mutex> lock(sketch_mutex_);
  out->sketch = sketch_->counters();
}

// What an import with admission's state must be like.
Status EmbeddingStore::CheckPending(const EmbeddingRowsView& rows) const {
  const int64_t count = rows.pending_ids.size();
  LODESTAR_RETURN_IF_ERROR(
      CheckSize("pending_sightings", rows.pending_sightings.size(), count));
  LODESTAR_RETURN_IF_ERROR(
      CheckSize("pending_last_seen", rows.pending_last_seen.size(), count));
  // Without admission there is no one to wait: what is pending is left out.
  if (!UsesAdmission()) return Status();
  for (int64_t i = 0; i < count; ++i) {
    if (rows.pending_sightings[i] < 0 ||
        rows.pending_sightings[i] > 0xffffffffLL) {
      return InvalidArgument("`pending_sightings[", i, "]` is ",
                             rows.pending_sightings[i],
                             ", wanted 0 to 2^32 - 1");
    }
  }
  const int64_t wanted = sketch_ == nullptr ? 0 : sketch_->num_counters();
  if (!rows.sketch.empty() && rows.sketch.size() != wanted) {
    return InvalidArgument("`sketch` has ", rows.sketch.size(),
                           " counters, but the variable's admission has ",
                           wanted);
  }
  if (sketch_ != nullptr && rows.sketch.empty() && count > 0) {
    return InvalidArgument("`pending_ids` has ", count,
                           " ids with exact counts, but the variable's "
                           "admission counts in a sketch");
  }
  LODESTAR_RETURN_IF_ERROR(CheckDistinct("pending_ids", rows.pending_ids));
  if (count == 0) return Status();
  std::vector<int64_t> resident(rows.ids.begin(), rows.ids.end());
  std::sort(resident.begin(), resident.end());
  for (int64_t id : rows.pending_ids) {
    if (std::binary_search(resident.begin(), resident.end(), id)) {
      return InvalidArgument("`pending_ids` holds ", id,
                             ", which `ids` holds too");
    }
  }
  return Status();
}

void EmbeddingStore::WriteImported(const EmbeddingRowsView& rows, int64_t i,
                                   const RowRef& ref) const {
  const RowStore& store = shards_[ref.shard]->rows;
  CopyRowIn(rows.values.at(i * dim_), row_bytes_, store.values(ref.row));
  if (rows.slots.empty()) return;
  const int64_t num_slots = rows.optimizer.slot_inits.size();
  for (int64_t s = 0; s < num_slots; ++s) {
    std::memcpy(store.slot(ref.row, static_cast<int>(s)),
                rows.slots.at((s * rows.ids.size() + i) * dim_), slot_bytes_);
  }
}

Status EmbeddingStore::Import(const EmbeddingRowsView& rows, bool replace,
                              const ParallelFor* parallel) try {
  const int64_t count = rows.ids.size();
  const int64_t num_slots = rows.optimizer.slot_inits.size();
  LODESTAR_RETURN_IF_ERROR(CheckSize("rows", rows.values.size(), count * dim_));
  LODESTAR_RETURN_IF_ERROR(CheckType("rows", rows.values, type_));
  LODESTAR_RETURN_IF_ERROR(
      CheckSize("slots", rows.slots.size(), num_slots * count * dim_));
  if (!rows.slots.empty()) {
    LODESTAR_RETURN_IF_ERROR(
        CheckType("slots", rows.slots, ComputeType(type_)));
  }
  LODESTAR_RETURN_IF_ERROR(
      CheckSize("frequencies", rows.frequencies.size(), count));
  LODESTAR_RETURN_IF_ERROR(
      CheckSize("last_seen", rows.last_seen.size(), count));
  for (int64_t i = 0; i < count; ++i) {
    if (rows.frequencies[i] < 0 || rows.frequencies[i] > 0xffffffffLL) {
      return InvalidArgument("`frequencies[", i, "]` is ", rows.frequencies[i],
                             ", wanted 0 to 2^32 - 1");
    }
  }
  const AttachedOptimizer& optimizer = rows.optimizer;
  if (optimizer.name.empty() &&
      !(optimizer.slot_names.empty() && optimizer.slot_inits.empty())) {
    return InvalidArgument("`slot_names` has ", optimizer.slot_names.size(),
                           " names and `slot_inits` ", num_slots,
                           " numbers, but `optimizer` is empty");
  }
  if (!optimizer.name.empty()) {
    LODESTAR_RETURN_IF_ERROR(optimizer.Check());
    LODESTAR_RETURN_IF_ERROR(CheckOptimizer(optimizer));
  }
  LODESTAR_RETURN_IF_ERROR(CheckDistinct("ids", rows.ids));
  LODESTAR_RETURN_IF_ERROR(CheckPending(rows));
  LODESTAR_RETURN_IF_ERROR(CheckShared(rows));
  return replace ? ReplaceAll(rows, parallel) : Merge(rows, parallel);
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while ", rows.ids.size(),
                           " rows are imported");
}

Status EmbeddingStore::ReplaceAll(const EmbeddingRowsView& rows,
                                  const ParallelFor* parallel) {
  LODESTAR_RETURN_IF_ERROR(CheckRoom(rows.ids.size()));
  const int64_t num_shards = static_cast<int64_t>(shards_.size());
  std::vector<std::vector<int64_t>> members(num_shards);
  std::vector<std::vector<uint32_t>> tags(num_shards);
  for (int64_t i : OrderOfImport(rows)) {
    const Place place = PlaceOf(rows.ids[i]);
    members[place.shard].push_back(i);
    tags[place.shard].push_back(place.tag);
  }
  ShardLocks locks(*this, std::defer_lock);
  LockBetweenSnapshots(&locks);
  std::vector<std::unique_ptr<LeafIndex>> fresh(num_shards);
  for (int64_t s = 0; s < num_shards; ++s) {
    Shard& shard = *shards_[s];
    fresh[s] = std::make_unique<LeafIndex>(&epochs_, s);
    LODESTAR_RETURN_IF_ERROR(fresh[s]->Reserve(tags[s]));
    LODESTAR_RETURN_IF_ERROR(shard.rows.ReserveCapacity(members[s].size()));
    if (shard.order != nullptr) {
      LODESTAR_RETURN_IF_ERROR(shard.order->Reserve(shard.rows.capacity()));
    }
  }
  std::vector<std::unique_ptr<PendingIds>> pending(num_shards);
  std::vector<uint8_t> sketch;
  LODESTAR_RETURN_IF_ERROR(BuildPending(rows, &pending, &sketch));
  LODESTAR_RETURN_IF_ERROR(ReserveOptimizer(rows.optimizer));
  AttachedOptimizer optimizer = rows.optimizer;
  std::optional<ShardLocks> shared_locks;
  AttachedOptimizer shared_optimizer;
  if (shared_ != nullptr) {
    shared_locks.emplace(*shared_);
    LODESTAR_RETURN_IF_ERROR(shared_->ReserveOptimizer(rows.optimizer));
    shared_optimizer = rows.optimizer;
  }
  // Nothing from here on can fail.
  ForgetBase();
  const int64_t cost = rows.ids.size() / num_shards * 100 + 1;
  RunParallel(parallel, num_shards, cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) shards_[s]->rows.FreeAll();
  });
  Attach(std::move(optimizer));
  if (rows.with_counters) initializer_.SetSeed(rows.seed, rows.salt);
  RunParallel(parallel, num_shards, cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      Shard& shard = *shards_[s];
      if (shard.order != nullptr) shard.order->Clear();
      for (size_t k = 0; k < members[s].size(); ++k) {
        const int64_t i = members[s][k];
        const RowRef ref =
            RefTo(static_cast<uint32_t>(s), shard.rows.Allocate());
        WriteImported(rows, i, ref);
        shard.rows.Publish(ref.row, rows.ids[i], rows.last_seen[i],
                           static_cast<uint32_t>(rows.frequencies[i]));
        fresh[s]->Insert(tags[s][k], ref.row);
        if (shard.order != nullptr) shard.order->Add(ref.row);
      }
      shard.index.Replace(fresh[s].get());
      if (shard.order != nullptr) shard.order->MarkSorted();
      shard.pending.swap(pending[s]);
      if (!rows.pending_last_seen.empty()) {
        shard.pending_step = rows.pending_last_seen[0];
      }
    }
  });
  if (sketch_ != nullptr) {
    std::lock_guard<std::mutex> lock(sketch_mutex_);
    sketch_->Swap(&sketch);
  }
  if (shared_ != nullptr) {
    shared_->Attach(std::move(shared_optimizer));
    ImportShared(rows);
  }
  size_.store(rows.ids.size(), std::memory_order_relaxed);
  if (rows.with_counters) {
    step_.store(rows.step, std::memory_order_relaxed);
    own_step_.store(rows.own_step, std::memory_order_relaxed);
  }
  return Status();
}

// Rows come in the order in which they are to go, if they go in one.
std::vector<int64_t> EmbeddingStore::OrderOfImport(
    const EmbeddingRowsView& rows) const {
  std::vector<int64_t> order(rows.ids.size());
  for (int64_t i = 0; i < rows.ids.size(); ++i) order[i] = i;
  if (shards_[0]->order == nullptr) return order;
  const bool lfu = shards_[0]->order->order() == EvictionPolicy::Order::kLfu;
  const auto key_of = [&](int64_t i) {
    EvictionKey key;
    if (lfu) key.frequency = static_cast<uint32_t>(rows.frequencies[i]);
    key.last_seen = rows.last_seen[i];
    key.mixed_id = Mix64(static_cast<uint64_t>(rows.ids[i]));
    return key;
  };
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return key_of(a) < key_of(b); });
  return order;
}

Status EmbeddingStore::BuildPending(
    const EmbeddingRowsView& rows,
    std::vector<std::unique_ptr<PendingIds>>* pending,
    std::vector<uint8_t>* sketch) const {
  if (!UsesAdmission()) return Status();
  std::vector<std::vector<uint32_t>> tags(shards_.size());
  for (int64_t id : rows.pending_ids) {
    const Place place = PlaceOf(id);
    tags[place.shard].push_back(place.tag);
  }
  for (size_t s = 0; s < shards_.size(); ++s) {
    (*pending)[s] = std::make_unique<PendingIds>(&epochs_);
    LODESTAR_RETURN_IF_ERROR((*pending)[s]->Reserve(tags[s]));
  }
  for (int64_t i = 0; i < rows.pending_ids.size(); ++i) {
    const Place place = PlaceOf(rows.pending_ids[i]);
    (*pending)[place.shard]->Add(
        place.tag, rows.pending_ids[i],
        static_cast<uint32_t>(rows.pending_sightings[i]),
        rows.pending_last_seen[i]);
  }
  sketch->assign(rows.sketch.begin(), rows.sketch.end());
  return Status();
}

Status EmbeddingStore::Merge(const EmbeddingRowsView& rows,
                             const ParallelFor* parallel) {
  ImageBudget::Global().Wait();
  const std::vector<int64_t> order = OrderOfImport(rows);
  std::vector<RowRef> refs(rows.ids.size());
  FindAll(rows.ids, refs, parallel);
  std::vector<int64_t> missing;
  for (int64_t i : order) {
    if (!refs[i].found()) missing.push_back(i);
  }
  std::vector<char> inserted(rows.ids.size(), 0);
  ShardLocks locks(*this, std::defer_lock);
  InsertOptions options;
  options.refuse_excess = true;
  options.last_seen = rows.last_seen;
  options.frequencies = rows.frequencies;
  LODESTAR_RETURN_IF_ERROR(InsertMissing(
      rows.ids, missing, options, refs, parallel,
      [&](int64_t i, const RowRef& ref) {
        FillSlots(ref);
        WriteImported(rows, i, ref);
        inserted[i] = 1;
      },
      rows.optimizer.name.empty() ? nullptr : &rows.optimizer));
  locks.Lock();
  if (!rows.optimizer.name.empty() &&
      AttachmentOf(rows.optimizer) == kNoAttachment) {
    return Status();  // everything was replaced after this call, in effect
  }
  const auto assign = [&](int64_t i) {
    // New, or evicted before it found its place.
    if (inserted[i] || !refs[i].found()) return;
    Shard& shard = *shards_[refs[i].shard];
    EpochDomain::Guard guard(&epochs_);
    // Not there any more: removed after this call, in effect.
    if (!shard.rows.Lock(refs[i].row, rows.ids[i]) &&
        !LockAgain(rows.ids[i], &refs[i])) {
      return;
    }
    const uint32_t row = refs[i].row;
    shard.rows.BeforeWrite(row);
    // Whether or not it was there shows in nothing: slots start anew, too.
    if (rows.optimizer.name.empty()) FillSlots(refs[i]);
    WriteImported(rows, i, refs[i]);
    if (shard.order != nullptr) shard.order->Remove(row);
    RowMeta* meta = shard.rows.meta(row);
    meta->last_seen.store(rows.last_seen[i], std::memory_order_relaxed);
    meta->frequency.store(static_cast<uint32_t>(rows.frequencies[i]),
                          std::memory_order_relaxed);
    if (shard.order != nullptr) shard.order->Add(row);
    shard.rows.Unlock(row);
  };
  if (shards_[0]->order != nullptr) {
    for (int64_t i : order) assign(i);
    return Status();
  }
  RunParallel(parallel, rows.ids.size(), 100 + dim_,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) assign(i);
              });
  return Status();
}

}  // namespace lodestar
