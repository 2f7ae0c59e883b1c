#include "tf_ops/core/embedding/embedding_store.h"

#include <chrono>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/embedding/embedding_run.h"

namespace lodestar {

Status EmbeddingStore::Create(int64_t dim, int64_t num_shards,
                              const RowInitializer& initializer,
                              std::unique_ptr<EmbeddingStore>* out,
                              const TablePolicies& policies, RowType type) try {
  LODESTAR_RETURN_IF_ERROR(CheckOptions(dim, policies));
  if (num_shards < 1 || num_shards > 4096) {
    return InvalidArgument("`num_shards` must be in [1, 4096], got ",
                           num_shards, ".");
  }
  std::unique_ptr<EmbeddingStore> store(
      new EmbeddingStore(static_cast<int>(dim), static_cast<int>(num_shards),
                         initializer, policies, type));
  LODESTAR_RETURN_IF_ERROR(store->table_.shared.CreateRows());
  *out = std::move(store);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for a table of ", num_shards,
                           " shards.");
}

Status EmbeddingStore::CreateEmptyLike(const EmbeddingStore& like, int64_t seed,
                                       int64_t salt,
                                       std::unique_ptr<EmbeddingStore>* out) {
  RowInitializer initializer = like.table_.initializer;
  initializer.SetSeed(seed, salt);
  return Create(like.dim(), like.table_.rows.num_shards(), initializer, out,
                like.table_.policies, like.type());
}

Status EmbeddingStore::InsertOrAssign(Span<const int64_t> ids, const void* rows,
                                      const Execution& on) try {
  const ParallelFor* const parallel = on.parallel();
  table_.rows.changes().WaitForImages();
  std::vector<int64_t> unique;
  std::vector<int64_t> positions(ids.size());
  BatchUnique(ids, nullptr, &unique, positions);
  std::vector<const char*> values(unique.size());
  for (int64_t i = 0; i < ids.size(); ++i) {
    values[positions[i]] = static_cast<const char*>(rows) + i * row_bytes();
  }
  std::vector<RowRef> refs(unique.size());
  FindAll(unique, refs, parallel);
  std::vector<int64_t> missing;
  for (size_t i = 0; i < unique.size(); ++i) {
    if (!refs[i].found()) missing.push_back(i);
  }
  std::vector<char> inserted(unique.size(), 0);
  {
    InsertPlan::Options options;
    InsertPlan plan(
        unique, refs, options,
        [&](int64_t i, const RowRef& ref) {
          RowStore* const store = &table_.rows.shard(ref.shard).rows;
          store->WriteValues(ref.row, values[i]);
          table_.optimizer.FillSlots(store, ref.row);
          inserted[i] = 1;
        },
        &table_);
    LODESTAR_RETURN_IF_ERROR(plan.Prepare(missing));
    plan.Commit(parallel);
  }
  RunParallel(parallel, unique.size(), RowCost(dim()),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  // New or refused.
                  if (inserted[i] || !refs[i].found()) continue;
                  RowShard& shard = table_.rows.shard(refs[i].shard);
                  RowStore& store = shard.rows;
                  EpochDomain::Guard guard(table_.rows.epochs());
                  // If it is gone, it was removed after this call, in effect.
                  if (!store.Lock(refs[i].row, unique[i]) &&
                      !shard.LockAgain(table_.rows.HashOf(unique[i]).tag,
                                       unique[i], &refs[i])) {
                    continue;
                  }
                  store.BeforeWrite(refs[i].row);
                  store.WriteValues(refs[i].row, values[i]);
                  store.Unlock(refs[i].row);
                }
              });
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while assigning ", ids.size(),
                           " rows.");
}

Status EmbeddingStore::Remove(Span<const int64_t> ids, int64_t* removed,
                              const Execution&) try {
  *removed = 0;
  ShardedRows& rows = table_.rows;
  rows.changes().WaitForImages();
  std::vector<int64_t> counts(rows.num_shards(), 0);
  for (int64_t id : ids) ++counts[rows.HashOf(id).shard];
  ShardLocks locks(rows, counts);
  for (int64_t id : ids) {
    const ShardedRows::IdHash hash = rows.HashOf(id);
    RowShard& shard = rows.shard(hash.shard);
    const uint32_t row = shard.Find(hash.tag, id);
    if (row == LeafIndex::kNoRow) continue;
    shard.mutex.AssertHeld();
    rows.Remove(&shard, hash.tag, row);
    ++*removed;
  }
  rows.AddToSize(-*removed);
  table_.events.Add(Event::kRemoved, *removed);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while removing ", ids.size(),
                           " rows.");
}

Status EmbeddingStore::RemoveAll(const Execution&) try {
  ShardedRows& rows = table_.rows;
  ShardLocks locks(rows);
  int64_t removed = 0;
  if (!rows.changes().running()) {
    removed = rows.FreeAll();
  } else {
    // Copy-on-write images stay small: the table only has the rows that steps
    // have created since the last call.
    for (size_t s = 0; s < rows.num_shards(); ++s) {
      RowShard& shard = rows.shard(s);
      shard.ForEachRow([&](uint32_t row, int64_t id) {
        shard.mutex.AssertHeld();
        rows.Remove(&shard, rows.HashOf(id).tag, row);
        ++removed;
      });
    }
    rows.AddToSize(-removed);
  }
  table_.events.Add(Event::kRemoved, removed);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while removing all rows.");
}

Status EmbeddingStore::Clear(const Execution&) try {
  ShardLocks locks(table_.rows, std::defer_lock);
  table_.rows.LockBetweenSnapshots(&locks);
  table_.events.Add(Event::kRemoved, table_.rows.FreeAll());
  table_.occurrence_counter.Clear();
  table_.shared.Reset();
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while clearing the table.");
}

Status EmbeddingStore::RestartSlots(const AttachedOptimizer& optimizer,
                                    KeptSlots keep, bool* done,
                                    std::string* former, const Execution&) try {
  former->clear();
  OptimizerBinding& binding = table_.optimizer;
  ShardLocks locks(table_.rows);
  *done = !table_.rows.changes().running();
  if (!*done || !NeedsRestart(optimizer, keep)) return Status();
  const bool any = size() > 0 || table_.shared.any();
  const bool lost = any && binding.optimizer().has_slots();
  std::string name = lost ? binding.optimizer().name : "";
  AttachedOptimizer next = optimizer;
  LODESTAR_RETURN_IF_ERROR(binding.Reserve(next));
  binding.Bind(std::move(next));
  former->swap(name);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the optimizer slots of ", size(),
                           " rows.");
}

void EmbeddingStore::SetBase(const std::string& base, const Execution&) {
  try {
    ShardLocks locks(table_.rows, std::defer_lock);
    table_.rows.LockBetweenSnapshots(&locks);
    table_.rows.SetBase(base);
  } catch (const std::bad_alloc&) {
    table_.rows.changes().ForgetBase();
  }
}

namespace {

// Rows processed per lock of a shard: about a millisecond.
constexpr int64_t kRowsAtOnce = 4096;
constexpr int kSegmentsAtOnce = 16;
constexpr int kLeavesAtOnce = 8;

// Returns true when done.
template <typename Rows>
bool ReleaseSegments(Rows* rows) {
  for (int i = 0; i < kSegmentsAtOnce; ++i) {
    if (!rows->ReleaseSegment()) return true;
  }
  return false;
}

// Sets *tag to 0 after the last leaf.
template <typename Index>
Status CompactLeaves(Index* index, uint32_t* tag) {
  for (int i = 0; i < kLeavesAtOnce; ++i) {
    LODESTAR_RETURN_IF_ERROR(index->CompactLeaf(tag));
    if (*tag == 0) break;
  }
  return Status();
}

}  // namespace

Status EmbeddingStore::Compact(int64_t* returned, const Execution&) {
  *returned = 0;
  ShardedRows& rows = table_.rows;
  for (size_t s = 0; s < rows.num_shards(); ++s) {
    RowShard& shard = rows.shard(s);
    const auto bytes = [&] {
      shard.mutex.AssertHeld();
      return shard.bytes() + table_.occurrence_counter.bytes(s);
    };
    // Calls part() under the lock until it returns true.
    const auto in_parts = [&](const auto& part) {
      while (true) {
        rows.changes().WaitForImages();
        {
          MutexLock lock(&shard.mutex);
          const int64_t before = bytes();
          const bool last = part();
          *returned += before - bytes();
          if (last) return;
        }
        // std::mutex is not fair; sleep so that waiters can acquire it.
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    };
    Status status;
    const auto compact_leaves = [&](const auto& index) {
      uint32_t tag = 0;
      in_parts([&] {
        status = CompactLeaves(index(), &tag);
        return !status.ok() || tag == 0;
      });
    };
    uint32_t low = 0;
    in_parts([&] {
      shard.mutex.AssertHeld();
      return rows.Compact(&shard, kRowsAtOnce, &low);
    });
    in_parts([&] { return ReleaseSegments(&shard.rows); });
    in_parts([&] {
      shard.mutex.AssertHeld();
      if (shard.order != nullptr) shard.order->Shrink(shard.rows.capacity());
      return true;
    });
    compact_leaves([&] { return &shard.index; });
    LODESTAR_RETURN_IF_ERROR(status);
    if (!table_.occurrence_counter.uses_admission()) continue;
    // Look it up under the lock each time, because it may have been replaced.
    const auto pending = [&] {
      return table_.occurrence_counter.pending_ids(s);
    };
    low = 0;
    in_parts([&] {
      return pending()->Compact(
          kRowsAtOnce, &low, [&](int64_t id) { return rows.HashOf(id).tag; });
    });
    in_parts([&] { return ReleaseSegments(pending()); });
    compact_leaves(pending);
    LODESTAR_RETURN_IF_ERROR(status);
  }
  rows.epochs()->Collect();
  return Status();
}

}  // namespace lodestar
