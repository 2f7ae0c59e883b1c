// EmbeddingStore's export and import.

#include <algorithm>
#include <new>
#include <utility>

#include "tf_ops/core/batch_unique.h"
#include "tf_ops/core/embedding_store.h"

namespace lodestar {
namespace {

Status CheckSize(const char* name, int64_t found, int64_t wanted) {
  if (found == wanted) return Status();
  return InvalidArgument("`", name, "` has ", found, " numbers, wanted ",
                         wanted);
}

}  // namespace

Status EmbeddingStore::Export(bool with_slots, EmbeddingRows* out,
                              const ParallelFor* parallel) const try {
  // Rows stay where they are; updates go on.
  ShardLocks locks(*this);
  EmbeddingRows result;
  result.step = step();
  result.seed = initializer_.seed();
  result.salt = initializer_.salt();
  if (with_slots) result.optimizer = optimizer_;
  const int64_t num_slots = result.optimizer.slot_inits.size();
  std::vector<std::pair<int64_t, RowRef>> order;
  order.reserve(size());
  for (size_t s = 0; s < shards_.size(); ++s) {
    const RowStore& rows = shards_[s]->rows;
    for (uint32_t row = 0; row < rows.high_water(); ++row) {
      if (!rows.resident(row)) continue;
      order.push_back({rows.meta(row)->id.load(std::memory_order_relaxed),
                       {static_cast<uint32_t>(s), row}});
    }
  }
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  result.ids.resize(order.size());
  result.values.resize(order.size() * dim_);
  result.slots.resize(order.size() * dim_ * num_slots);
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
      CopyRowOut(rows.values(ref.row), dim_, &result.values[i * dim_]);
      for (int64_t s = 0; s < num_slots; ++s) {
        std::copy_n(rows.slot(ref.row, static_cast<int>(s)), dim_,
                    &result.slots[(s * count + i) * dim_]);
      }
      const RowMeta* meta = rows.meta(ref.row);
      result.frequencies[i] = meta->frequency.load(std::memory_order_relaxed);
      result.last_seen[i] = meta->last_seen.load(std::memory_order_relaxed);
      rows.Unlock(ref.row);
    }
  });
  *out = std::move(result);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while ", size(),
                           " rows are exported");
}

void EmbeddingStore::WriteImported(const EmbeddingRowsView& rows, int64_t i,
                                   const RowRef& ref) const {
  const RowStore& store = shards_[ref.shard]->rows;
  CopyRowIn(rows.values.data() + i * dim_, dim_, store.values(ref.row));
  if (rows.slots.empty()) return;
  const int64_t num_slots = rows.optimizer.slot_inits.size();
  for (int64_t s = 0; s < num_slots; ++s) {
    std::copy_n(rows.slots.data() + (s * rows.ids.size() + i) * dim_, dim_,
                store.slot(ref.row, static_cast<int>(s)));
  }
}

Status EmbeddingStore::Import(const EmbeddingRowsView& rows, bool replace,
                              const ParallelFor* parallel) try {
  const int64_t count = rows.ids.size();
  const int64_t num_slots = rows.optimizer.slot_inits.size();
  LODESTAR_RETURN_IF_ERROR(CheckSize("rows", rows.values.size(), count * dim_));
  LODESTAR_RETURN_IF_ERROR(
      CheckSize("slots", rows.slots.size(), num_slots * count * dim_));
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
    std::vector<std::string> known;
    if (!SparseOptimizer::SlotNames(optimizer.name, &known)) {
      return InvalidArgument("the rows come with the optimizer '",
                             optimizer.name, "', which is unknown");
    }
    if (known != optimizer.slot_names ||
        known.size() != optimizer.slot_inits.size()) {
      return InvalidArgument("the rows come with ", optimizer.slot_names.size(),
                             " slot names and ", num_slots,
                             " slot_inits, but '", optimizer.name, "' has ",
                             known.size(), " optimizer slots");
    }
    LODESTAR_RETURN_IF_ERROR(CheckOptimizer(optimizer.name));
  }
  {
    std::vector<int64_t> unique;
    std::vector<int64_t> positions(count);
    BatchUnique(rows.ids, nullptr, &unique, positions);
    for (int64_t i = 0; i < count; ++i) {
      // The first repeat is the first place that falls behind.
      if (positions[i] != i) {
        return InvalidArgument("`ids` holds ", rows.ids[i], " twice, at ",
                               positions[i], " and ", i);
      }
    }
  }
  return replace ? ReplaceAll(rows, parallel) : Merge(rows, parallel);
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while ", rows.ids.size(),
                           " rows are imported");
}

Status EmbeddingStore::ReplaceAll(const EmbeddingRowsView& rows,
                                  const ParallelFor* parallel) {
  const int64_t num_shards = static_cast<int64_t>(shards_.size());
  std::vector<std::vector<int64_t>> members(num_shards);
  std::vector<std::vector<uint32_t>> tags(num_shards);
  for (int64_t i = 0; i < rows.ids.size(); ++i) {
    const Place place = PlaceOf(rows.ids[i]);
    members[place.shard].push_back(i);
    tags[place.shard].push_back(place.tag);
  }
  ShardLocks locks(*this);
  std::vector<std::unique_ptr<LeafIndex>> fresh(num_shards);
  for (int64_t s = 0; s < num_shards; ++s) {
    fresh[s] = std::make_unique<LeafIndex>(&epochs_);
    LODESTAR_RETURN_IF_ERROR(fresh[s]->Reserve(tags[s]));
    LODESTAR_RETURN_IF_ERROR(
        shards_[s]->rows.ReserveCapacity(members[s].size()));
  }
  LODESTAR_RETURN_IF_ERROR(ReserveOptimizer(rows.optimizer));
  AttachedOptimizer optimizer = rows.optimizer;
  // Nothing from here on can fail.
  const int64_t cost = rows.ids.size() / num_shards * 100 + 1;
  RunParallel(parallel, num_shards, cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) shards_[s]->rows.FreeAll();
  });
  Attach(std::move(optimizer));
  if (rows.with_counters) initializer_.SetSeed(rows.seed, rows.salt);
  RunParallel(parallel, num_shards, cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      Shard& shard = *shards_[s];
      for (size_t k = 0; k < members[s].size(); ++k) {
        const int64_t i = members[s][k];
        const RowRef ref = {static_cast<uint32_t>(s), shard.rows.Allocate()};
        WriteImported(rows, i, ref);
        shard.rows.Publish(ref.row, rows.ids[i], rows.last_seen[i],
                           static_cast<uint32_t>(rows.frequencies[i]));
        fresh[s]->Insert(tags[s][k], ref.row);
      }
      shard.index.Replace(fresh[s].get());
    }
  });
  size_.store(rows.ids.size(), std::memory_order_relaxed);
  if (rows.with_counters) SetStep(rows.step);
  return Status();
}

Status EmbeddingStore::Merge(const EmbeddingRowsView& rows,
                             const ParallelFor* parallel) {
  std::vector<RowRef> refs(rows.ids.size());
  FindAll(rows.ids, refs, parallel);
  std::vector<int64_t> missing;
  for (int64_t i = 0; i < rows.ids.size(); ++i) {
    if (!refs[i].found()) missing.push_back(i);
  }
  LODESTAR_RETURN_IF_ERROR(InsertMissing(
      rows.ids, missing, 0, 0, refs, parallel,
      [&](int64_t i, const RowRef& ref) {
        FillSlots(ref);
        WriteImported(rows, i, ref);
      },
      rows.optimizer.name.empty() ? nullptr : &rows.optimizer));
  RunParallel(
      parallel, rows.ids.size(), 100 + dim_, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const RowStore& store = shards_[refs[i].shard]->rows;
          // Not there any more: removed after this call, in effect.
          if (!store.Lock(refs[i].row, rows.ids[i])) continue;
          WriteImported(rows, i, refs[i]);
          RowMeta* meta = store.meta(refs[i].row);
          meta->last_seen.store(rows.last_seen[i], std::memory_order_relaxed);
          meta->frequency.store(static_cast<uint32_t>(rows.frequencies[i]),
                                std::memory_order_relaxed);
          store.Unlock(refs[i].row);
        }
      });
  return Status();
}

}  // namespace lodestar
