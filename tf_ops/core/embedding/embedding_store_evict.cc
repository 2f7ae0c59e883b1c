// Sightings of a table whose rows go in an order, and Evict.

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

bool IsOlder(int64_t last_seen, int64_t now, int64_t max_age) {
  return static_cast<__int128>(now) - last_seen > max_age;
}

// In column order, so that it is the same everywhere.
template <typename T>
bool IsShorter(const T* row, int dim, float norm) {
  double squares = 0.0;
  for (int c = 0; c < dim; ++c) {
    const double x = ToCompute(row[c]);
    squares += x * x;
  }
  return squares < static_cast<double>(norm) * norm;
}

}  // namespace

EmbeddingStore::IndexLists EmbeddingStore::GroupByShard(
    Span<const int64_t> ids) const {
  IndexLists members(shards_.size());
  for (int64_t i = 0; i < ids.size(); ++i) {
    members[PlaceOf(ids[i]).shard].push_back(i);
  }
  return members;
}

void EmbeddingStore::TouchInOrder(Span<const int64_t> ids,
                                  const IndexLists& members,
                                  Span<const RowRef> refs, int64_t now,
                                  Span<const uint32_t> occurrences,
                                  const ParallelFor* parallel) {
  const int64_t num_shards = static_cast<int64_t>(shards_.size());
  const auto body = [&](int64_t begin, int64_t end) {
    constexpr size_t kAhead = 8;
    for (int64_t s = begin; s < end; ++s) {
      if (members[s].empty()) continue;
      Shard& shard = *shards_[s];
      for (size_t k = 0; k < members[s].size(); ++k) {
        if (k + kAhead < members[s].size()) {
          const RowRef& ahead = refs[members[s][k + kAhead]];
          if (ahead.found()) {
            __builtin_prefetch(shard.rows.meta(ahead.row), 1);
            shard.order->Prefetch(ahead.row);
          }
        }
        const int64_t i = members[s][k];
        if (!refs[i].found()) continue;
        uint32_t row = refs[i].row;
        if (!shard.rows.Holds(row, ids[i])) {
          // Evicted since it was found, or moved.
          row = FindRow(shard, PlaceOf(ids[i]).tag, ids[i]);
          if (row == LeafIndex::kNoRow) continue;
        }
        RowMeta* meta = shard.rows.meta(row);
        if (!IsToCount(meta, now, occurrences)) continue;
        const bool held =
            shard.rows.IsUnsaved(row) && shard.rows.Lock(row, ids[i]);
        shard.rows.BeforeWrite(row);
        shard.order->Remove(row);
        CountSighting(meta, now, i, occurrences);
        if (held) shard.rows.Unlock(row);
        shard.order->Add(row);
      }
    }
  };
  RunParallel(parallel, num_shards, ids.size() / num_shards * 60 + 1, body);
}

// False: there is no order to find them by.
bool EmbeddingStore::FindOldest(int64_t max_age, int64_t now,
                                RowLists* victims) const {
  if (shards_[0]->order == nullptr ||
      shards_[0]->order->order() != EvictionPolicy::Order::kLru) {
    return false;
  }
  for (size_t s = 0; s < shards_.size(); ++s) {
    const Shard& shard = *shards_[s];
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
  if (!by_norm && excess <= 0 &&
      (policy.max_age < 0 || FindOldest(policy.max_age, now, victims))) {
    return Status();
  }
  struct Candidate {
    EvictionKey key;
    uint32_t shard;
    uint32_t row;
  };
  std::vector<std::vector<Candidate>> left(shards_.size());
  const auto is_shorter = [&](const char* row) {
    return VisitRowType(type_, [&](auto zero) {
      return IsShorter(reinterpret_cast<const decltype(zero)*>(row), dim_,
                       policy.min_norm);
    });
  };
  std::atomic<bool> exhausted{false};
  RunParallel(
      parallel, shards_.size(), size() / shards_.size() * RowCost(dim_) + 1,
      [&](int64_t begin, int64_t end) {
        try {
          std::vector<char> value(row_bytes_);
          for (int64_t s = begin; s < end; ++s) {
            const RowStore& rows = shards_[s]->rows;
            for (uint32_t row = 0; row < rows.high_water(); ++row) {
              if (!rows.resident(row)) continue;
              const RowMeta* meta = rows.meta(row);
              Candidate c = {{}, static_cast<uint32_t>(s), row};
              const int64_t id = meta->id.load(std::memory_order_relaxed);
              const uint32_t frequency =
                  meta->frequency.load(std::memory_order_relaxed);
              c.key.last_seen = meta->last_seen.load(std::memory_order_relaxed);
              if (c.key.last_seen == now && frequency > 0) continue;
              if ((policy.max_age >= 0 &&
                   IsOlder(c.key.last_seen, now, policy.max_age)) ||
                  (by_norm && rows.Read(row, id, value.data()) &&
                   is_shorter(value.data()))) {
                (*victims)[s].push_back(row);
              } else if (excess > 0) {
                if (policy.order == EvictionPolicy::Order::kLfu) {
                  c.key.frequency = frequency;
                }
                c.key.mixed_id = Mix64(static_cast<uint64_t>(id));
                left[s].push_back(c);
              }
            }
          }
        } catch (const std::bad_alloc&) {
          exhausted = true;
        }
      });
  if (exhausted) {
    return ResourceExhausted(
        "out of memory while rows to evict are looked for");
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

Status EmbeddingStore::ForgetPending(int64_t max_age, int64_t now) {
  if (sketch_ != nullptr || !UsesAdmission()) return Status();
  struct Entry {
    uint32_t tag;
    uint32_t entry;
  };
  std::vector<std::vector<Entry>> old(shards_.size());
  for (size_t s = 0; s < shards_.size(); ++s) {
    PendingIds& pending = *shards_[s]->pending;
    pending.ForEach([&](int64_t id, uint32_t, int64_t last_seen) {
      if (!IsOlder(last_seen, now, max_age)) return;
      const uint32_t tag = PlaceOf(id).tag;
      old[s].push_back({tag, pending.Find(tag, id)});
    });
  }
  for (size_t s = 0; s < shards_.size(); ++s) {
    for (const Entry& e : old[s]) shards_[s]->pending->Remove(e.tag, e.entry);
  }
  return Status();
}

Status EmbeddingStore::Evict(const EvictionPolicy& policy, int64_t* evicted,
                             const ParallelFor* parallel) try {
  *evicted = 0;
  ImageBudget::Global().Wait();
  ShardLocks locks(*this);
  const int64_t now = step();
  RowLists victims(shards_.size());
  LODESTAR_RETURN_IF_ERROR(FindVictims(policy, now, &victims, parallel));
  if (policy.max_age >= 0) {
    LODESTAR_RETURN_IF_ERROR(ForgetPending(policy.max_age, now));
  }
  for (size_t s = 0; s < shards_.size(); ++s) {
    Shard& shard = *shards_[s];
    for (uint32_t row : victims[s]) {
      const int64_t id =
          shard.rows.meta(row)->id.load(std::memory_order_relaxed);
      RemoveRow(&shard, PlaceOf(id).tag, row);
      ++*evicted;
    }
  }
  size_.fetch_sub(*evicted, std::memory_order_relaxed);
  evicted_.fetch_add(*evicted, std::memory_order_relaxed);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while rows are evicted");
}

Status EmbeddingStore::DecayFrequencies(double rate,
                                        const ParallelFor* parallel) try {
  if (!(rate >= 0.0 && rate <= 1.0)) {
    return InvalidArgument("`rate` is ", rate, ", wanted 0 to 1");
  }
  ShardLocks locks(*this, std::defer_lock);
  LockBetweenSnapshots(&locks);
  const int64_t now = step();
  const auto decayed = [&](const RowMeta* meta) {
    const uint32_t before = meta->frequency.load(std::memory_order_relaxed);
    const uint32_t after = static_cast<uint32_t>(before * rate);
    const bool current = meta->last_seen.load(std::memory_order_relaxed) == now;
    return current && before > 0 && after == 0 ? 1 : after;
  };
  // Rows that go by frequency change their places.
  struct Ordered {
    EvictionKey key;
    uint32_t row;
  };
  std::vector<std::vector<Ordered>> orders(shards_.size());
  if (shards_[0]->order != nullptr &&
      shards_[0]->order->order() == EvictionPolicy::Order::kLfu) {
    for (size_t s = 0; s < shards_.size(); ++s) {
      const Shard& shard = *shards_[s];
      orders[s].reserve(shard.rows.live());
      for (uint32_t row = 0; row < shard.rows.high_water(); ++row) {
        if (!shard.rows.resident(row)) continue;
        Ordered ordered = {shard.order->KeyOf(row), row};
        ordered.key.frequency = decayed(shard.rows.meta(row));
        orders[s].push_back(ordered);
      }
      std::sort(
          orders[s].begin(), orders[s].end(),
          [](const Ordered& a, const Ordered& b) { return a.key < b.key; });
    }
  }
  RunParallel(
      parallel, shards_.size(), size() / shards_.size() * 20 + 1,
      [&](int64_t begin, int64_t end) {
        for (int64_t s = begin; s < end; ++s) {
          Shard& shard = *shards_[s];
          for (uint32_t row = 0; row < shard.rows.high_water(); ++row) {
            if (!shard.rows.resident(row)) continue;
            RowMeta* meta = shard.rows.meta(row);
            shard.rows.Lock(row, meta->id.load(std::memory_order_relaxed));
            shard.rows.BeforeWrite(row);
            meta->frequency.store(decayed(meta), std::memory_order_relaxed);
            shard.rows.Unlock(row);
          }
          if (orders[s].empty()) continue;
          shard.order->Clear();
          for (const Ordered& ordered : orders[s]) {
            shard.order->Add(ordered.row);
          }
          shard.order->MarkSorted();
        }
      });
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while frequencies decay");
}

}  // namespace lodestar
