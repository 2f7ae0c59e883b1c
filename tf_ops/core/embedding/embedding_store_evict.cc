// EmbeddingStore: eviction and decay.

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

// Returns false if the table has no eviction order to find them by.
bool EmbeddingStore::FindOldest(int64_t max_age, int64_t now,
                                RowLists* victims) const {
  const ShardedRows& table = table_.rows;
  for (size_t s = 0; s < table.num_shards(); ++s) {
    const RowShard& shard = table.shard(s);
    shard.mutex.AssertHeld();
    EvictionList* const order =
        shard.order == nullptr ? nullptr : shard.order->by_age();
    if (order == nullptr) return false;
    for (uint32_t row = order->oldest(); row != EvictionList::kNone;
         row = order->after(row)) {
      const RowMeta* meta = shard.rows.meta(row);
      if (!IsOlder(meta->last_seen.load(std::memory_order_relaxed), now,
                   max_age)) {
        break;
      }
      (*victims)[s].push_back(row);
    }
  }
  return true;
}

bool EmbeddingStore::IsSelected(const EvictionPolicy& policy,
                                const RowStore& rows, uint32_t row, int64_t id,
                                int64_t now) const {
  const RowMeta* meta = rows.meta(row);
  const uint32_t frequency = meta->frequency.load(std::memory_order_relaxed);
  const int64_t last_seen = meta->last_seen.load(std::memory_order_relaxed);
  if (last_seen == now && frequency > 0) return false;
  if (policy.max_age >= 0 && IsOlder(last_seen, now, policy.max_age)) {
    return true;
  }
  if (frequency < policy.min_frequency) return true;
  if (policy.min_norm <= 0.0f) return false;
  std::vector<char> decoded;
  if (!rows.stored().is_same()) decoded.resize(row_bytes());
  rows.Lock(row, id);
  const void* values = rows.values(row);
  if (!decoded.empty()) {
    rows.ReadValues(row, decoded.data());
    values = decoded.data();
  }
  const bool shorter = VisitRowType(type(), [&](auto zero) {
    return IsShorter(static_cast<const decltype(zero)*>(values), dim(),
                     policy.min_norm);
  });
  rows.UnlockUnchanged(row);
  return shorter;
}

Status EmbeddingStore::FindVictims(const EvictionPolicy& policy, int64_t now,
                                   RowLists* victims,
                                   const ParallelFor* parallel) const {
  const int64_t excess = policy.max_rows > 0 ? size() - policy.max_rows : 0;
  if (!policy.scans_rows() && excess <= 0 &&
      (policy.max_age < 0 || FindOldest(policy.max_age, now, victims))) {
    return Status();
  }
  struct Candidate {
    EvictionKey key;
    uint32_t shard;
    uint32_t row;
  };
  const int64_t num_shards = table_.rows.num_shards();
  std::vector<std::vector<Candidate>> left(num_shards);
  std::atomic<bool> exhausted{false};
  const auto look_at = [&](int64_t s) {
    const RowShard& shard = table_.rows.shard(s);
    shard.ForEachRow([&](uint32_t row, int64_t id) {
      if (IsSelected(policy, shard.rows, row, id, now)) {
        (*victims)[s].push_back(row);
        return;
      }
      const RowMeta& meta = *shard.rows.meta(row);
      const uint32_t frequency = meta.frequency.load(std::memory_order_relaxed);
      Candidate c = {EvictionList::AgeOf(meta), static_cast<uint32_t>(s), row};
      if (excess > 0 && !(c.key.last_seen == now && frequency > 0)) {
        if (policy.order == EvictionPolicy::Order::kLfu) {
          c.key.frequency = frequency;
        }
        left[s].push_back(c);
      }
    });
  };
  RunParallel(parallel, num_shards, size() / num_shards * RowCost(dim()) + 1,
              [&](int64_t begin, int64_t end) {
                try {
                  for (int64_t s = begin; s < end; ++s) look_at(s);
                } catch (const std::bad_alloc&) {
                  exhausted = true;
                }
              });
  if (exhausted) {
    return ResourceExhausted("out of memory while finding rows to evict.");
  }
  int64_t more = excess;
  for (const auto& rows : *victims) more -= static_cast<int64_t>(rows.size());
  if (more <= 0) return Status();
  std::vector<Candidate> all;
  for (const auto& some : left) all.insert(all.end(), some.begin(), some.end());
  more = std::min<int64_t>(more, all.size());
  std::nth_element(
      all.begin(), all.begin() + more, all.end(),
      [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
  for (int64_t i = 0; i < more; ++i) {
    (*victims)[all[i].shard].push_back(all[i].row);
  }
  return Status();
}

Status EmbeddingStore::EvictRows(const EvictionPolicy& policy,
                                 const AllocateEvicted& allocate,
                                 int64_t* evicted, const Execution& on) try {
  *evicted = 0;
  ShardedRows& rows = table_.rows;
  rows.changes().WaitForImages();
  ShardLocks locks(rows);
  const int64_t now = step();
  RowLists victims(rows.num_shards());
  LODESTAR_RETURN_IF_ERROR(FindVictims(policy, now, &victims, on.parallel()));
  EvictedRows copies;
  if (allocate) {
    int64_t count = 0;
    for (const auto& of_shard : victims) count += of_shard.size();
    LODESTAR_RETURN_IF_ERROR(allocate(count, &copies));
  }
  for (size_t s = 0; s < rows.num_shards(); ++s) {
    RowShard& shard = rows.shard(s);
    shard.mutex.AssertHeld();
    if (policy.max_age >= 0) {
      table_.occurrence_counter.Forget(s, policy.max_age, now);
    }
    for (uint32_t row : victims[s]) {
      const int64_t id =
          shard.rows.meta(row)->id.load(std::memory_order_relaxed);
      if (copies.ids != nullptr) {
        copies.ids[*evicted] = id;
        shard.rows.Read(row, id, copies.rows + *evicted * row_bytes());
      }
      rows.Remove(&shard, rows.HashOf(id).tag, row);
      ++*evicted;
    }
  }
  rows.AddToSize(-*evicted);
  table_.events.Add(Event::kEvicted, *evicted);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while evicting rows.");
}

Status EmbeddingStore::EvictDue(const EvictionPolicy& due, const Execution&) {
  ShardedRows& rows = table_.rows;
  // A table that only serves keeps its rows.
  if (!rows.CheckTrains().ok()) return Status();
  int64_t evicted = 0;
  // One shard at a time, so that other callers do not wait for all of them.
  for (size_t s = 0; s < rows.num_shards(); ++s) {
    RowShard& shard = rows.shard(s);
    MutexLock lock(&shard.mutex);
    const int64_t now = step();
    const auto remove = [&](uint32_t row, int64_t id) {
      shard.mutex.AssertHeld();
      rows.Remove(&shard, rows.HashOf(id).tag, row);
      ++evicted;
    };
    if (due.max_age >= 0) {
      EvictionList* const order = shard.order->by_age();
      for (uint32_t row = order->oldest(); row != EvictionList::kNone;
           row = order->oldest()) {
        const RowMeta* meta = shard.rows.meta(row);
        const int64_t seen = meta->last_seen.load(std::memory_order_relaxed);
        if (!IsOlder(seen, now, due.max_age)) break;
        remove(row, meta->id.load(std::memory_order_relaxed));
      }
      table_.occurrence_counter.Forget(s, due.max_age, now);
    }
    if (!due.scans_rows()) continue;
    shard.ForEachRow([&](uint32_t row, int64_t id) {
      if (IsSelected(due, shard.rows, row, id, now)) remove(row, id);
    });
  }
  rows.AddToSize(-evicted);
  table_.events.Add(Event::kEvicted, evicted);
  return Status();
}

Status EmbeddingStore::DecayFrequencies(double rate, const Execution& on) try {
  if (!(rate >= 0.0 && rate <= 1.0)) {
    return InvalidArgument("`rate` must be in [0, 1], got ", rate, ".");
  }
  ShardedRows& rows = table_.rows;
  ShardLocks locks(rows, std::defer_lock);
  rows.LockBetweenSnapshots(&locks);
  const int64_t now = step();
  // Decay changes the order of rows in an LFU table.
  std::vector<OrderRebuild> orders;
  if (rows.ordered_by_frequency()) {
    orders.resize(rows.num_shards());
    for (size_t s = 0; s < orders.size(); ++s) {
      orders[s].Reserve(rows.shard(s));
    }
  }
  const int64_t num_shards = rows.num_shards();
  RunParallel(on.parallel(), num_shards, size() / num_shards * 20 + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t s = begin; s < end; ++s) {
                  RowShard& shard = rows.shard(s);
                  shard.mutex.AssertHeld();
                  OccurrenceCounter::Decay(rate, now, &shard);
                  if (!orders.empty()) orders[s].Run(&shard);
                }
              });
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while decaying frequencies.");
}

}  // namespace lodestar
