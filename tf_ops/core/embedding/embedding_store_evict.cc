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
  if (!table.ordered_by(EvictionPolicy::Order::kLru)) return false;
  for (size_t s = 0; s < table.num_shards(); ++s) {
    const RowShard& shard = table.shard(s);
    shard.mutex.AssertHeld();
    for (uint32_t row = shard.order->oldest(); row != EvictionList::kNone;
         row = shard.order->after(row)) {
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

Status EmbeddingStore::FindVictims(const EvictionPolicy& policy, int64_t now,
                                   RowLists* victims,
                                   const ParallelFor* parallel) const {
  const int64_t excess = policy.max_rows > 0 ? size() - policy.max_rows : 0;
  const bool by_norm = policy.min_norm > 0.0f;
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
  const auto is_shorter = [&](const char* row) {
    return VisitRowType(type(), [&](auto zero) {
      return IsShorter(reinterpret_cast<const decltype(zero)*>(row), dim(),
                       policy.min_norm);
    });
  };
  std::atomic<bool> exhausted{false};
  const auto look_at = [&](int64_t s, char* value) {
    const RowShard& shard = table_.rows.shard(s);
    shard.ForEachRow([&](uint32_t row, int64_t id) {
      const RowMeta* meta = shard.rows.meta(row);
      const uint32_t frequency =
          meta->frequency.load(std::memory_order_relaxed);
      Candidate c = {{}, static_cast<uint32_t>(s), row};
      c.key.last_seen = meta->last_seen.load(std::memory_order_relaxed);
      if (c.key.last_seen == now && frequency > 0) return;
      if ((policy.max_age >= 0 &&
           IsOlder(c.key.last_seen, now, policy.max_age)) ||
          frequency < policy.min_frequency ||
          (by_norm && shard.rows.Read(row, id, value) && is_shorter(value))) {
        (*victims)[s].push_back(row);
      } else if (excess > 0) {
        if (policy.order == EvictionPolicy::Order::kLfu) {
          c.key.frequency = frequency;
        }
        c.key.mixed_id = Mix64(static_cast<uint64_t>(id));
        left[s].push_back(c);
      }
    });
  };
  RunParallel(parallel, num_shards, size() / num_shards * RowCost(dim()) + 1,
              [&](int64_t begin, int64_t end) {
                try {
                  std::vector<char> value(row_bytes());
                  for (int64_t s = begin; s < end; ++s) {
                    look_at(s, value.data());
                  }
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
  if (policy.max_age >= 0)
    table_.occurrence_counter.Forget(policy.max_age, now);
  for (size_t s = 0; s < rows.num_shards(); ++s) {
    RowShard& shard = rows.shard(s);
    shard.mutex.AssertHeld();
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
  if (rows.ordered_by(EvictionPolicy::Order::kLfu)) {
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
