// ShardedRows: the rows of a table. Mix64(id) selects a shard. A keyed hash of
// the process (keyed_hash.h) is the tag in the shard's LeafIndex, which leads
// to a row of the shard's RowStore. Sharding, tags and growth never change a
// result. Shared rows are in a RowStore of their own.
//
// Reads and writes of resident rows take no shard lock, except that moving a
// row within the eviction order takes all shard locks.
// docs/internals/storage.md defines the lock order.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_SHARDED_ROWS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_SHARDED_ROWS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/keyed_hash.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/memory/epoch.h"
#include "tf_ops/core/rows/eviction_list.h"
#include "tf_ops/core/rows/eviction_orders.h"
#include "tf_ops/core/rows/leaf_index.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/slot_shape.h"
#include "tf_ops/core/rows/table_policies.h"
#include "tf_ops/core/table/lookup_plan.h"
#include "tf_ops/core/table/table_changes.h"

namespace lodestar {

// Rows of one shard. Methods require an epoch guard or the shard's mutex.
// Guards must not nest: without memory, a guard waits for the end of another.
struct RowShard {
  RowShard(int dim, RowType type, RowStorage storage, uint32_t number,
           Arena* arena, EpochDomain* epochs)
      : index(epochs, number), rows(dim, arena, number, type, storage) {}

  // Returns kNoRow if the id has no row.
  uint32_t Find(uint32_t tag, int64_t id) const;
  // Locks the row of `id` after it disappeared from `ref`. Returns false,
  // without the lock, if the id has no row.
  bool LockAgain(uint32_t tag, int64_t id, RowRef* ref);
  // Reads the row after it disappeared; the id may have another one now.
  bool ReadAgain(uint32_t tag, int64_t id, void* row) const;
  // Calls fn(row, id) for the resident rows. Requires the mutex.
  template <typename Fn>
  void ForEachRow(const Fn& fn) const {
    for (uint32_t row = 0; row < rows.high_water(); ++row) {
      if (!rows.resident(row)) continue;
      fn(row, rows.meta(row)->id.load(std::memory_order_relaxed));
    }
  }
  int64_t bytes() const LODESTAR_REQUIRES(mutex) {
    return index.bytes() + rows.row_bytes() + rows.slot_bytes() +
           (order == nullptr ? 0 : order->bytes());
  }

  mutable Mutex mutex;
  LeafIndex index;
  // Number of moved rows. Incremented after the index is updated and before the
  // old place is freed: a reader that finds a row gone and this counter
  // unchanged knows that the id has no row.
  std::atomic<uint64_t> moves{0};
  RowStore rows;
  // Null if the table has no eviction order.
  std::unique_ptr<EvictionOrders> order LODESTAR_PT_GUARDED_BY(mutex);
  RemovedIds removed LODESTAR_GUARDED_BY(mutex);  // since the base
};

class ShardedRows;

// Locks several shards in ascending order.
class ShardLocks {
 public:
  explicit ShardLocks(const ShardedRows& rows);
  // Locks the shards with a count above 0.
  ShardLocks(const ShardedRows& rows, const std::vector<int64_t>& counts);
  // Locks nothing yet. Locking later cannot fail.
  ShardLocks(const ShardedRows& rows, std::defer_lock_t);
  void Lock();
  void Unlock();

 private:
  std::vector<std::unique_lock<Mutex>> locks_;
};

// Rebuilds the eviction lists of a shard.
class OrderRebuild {
 public:
  // Allocates memory and may throw; Run cannot.
  void Reserve(const RowShard& shard) { rows_.reserve(shard.rows.live()); }
  // Requires: the shard's lists have room for its rows.
  void Run(RowShard* shard) LODESTAR_REQUIRES(shard->mutex);

 private:
  std::vector<std::pair<EvictionKey, uint32_t>> rows_;
};

class ShardedRows {
 public:
  // Creates a table without rows and without room for any.
  ShardedRows(int dim, RowType type, int num_shards,
              const TablePolicies& policies);

  int dim() const { return dim_; }
  RowType type() const { return type_; }
  // Returns FailedPrecondition if the rows are stored for serving only.
  Status CheckTrains() const;
  // Of a row in its type.
  int64_t row_bytes() const { return row_bytes_; }
  // Calls f(width), with a width for RowStore::Read.
  template <typename F>
  void VisitRowWidth(const F& f) const {
    if (storage_ != RowStorage::kSame) return f(row_bytes_);
    VisitWidth<char>(row_bytes_, f);
  }
  // Of a row in the type that it is computed in.
  int64_t computed_bytes() const { return computed_bytes_; }
  size_t num_shards() const { return shards_.size(); }
  RowShard& shard(size_t s) { return *shards_[s]; }
  const RowShard& shard(size_t s) const { return *shards_[s]; }
  // Null if there are no shared rows.
  RowStore* shared() { return shared_.get(); }
  const RowStore* shared() const { return shared_.get(); }
  EpochDomain* epochs() const { return &epochs_; }
  // Whether the table has an eviction order.
  bool ordered() const {
    return eviction_.keeps_cap_order() || eviction_.keeps_age_order();
  }
  // Whether the order depends on frequencies.
  bool ordered_by_frequency() const {
    return eviction_.keeps_cap_order() &&
           eviction_.order == EvictionPolicy::Order::kLfu;
  }

  struct IdHash {
    uint32_t shard;
    uint32_t tag;
  };
  IdHash HashOf(int64_t id) const {
    const uint64_t mixed = Mix64(static_cast<uint64_t>(id));
    return {FastRange32(static_cast<uint32_t>(mixed >> 32),
                        static_cast<uint32_t>(shards_.size())),
            static_cast<uint32_t>(MultiplyHash(mixed, hash_key_) >> 32)};
  }
  RowRef RefTo(uint32_t shard, uint32_t row) const {
    return {shard, row, shards_[shard]->rows.meta(row)};
  }
  // Indices of `ids`, grouped by shard.
  using IndexLists = std::vector<std::vector<int64_t>>;
  IndexLists GroupByShard(Span<const int64_t> ids) const;

  // Number of rows. Callers that add or remove rows must update it.
  int64_t size() const { return size_.load(std::memory_order_relaxed); }
  void AddToSize(int64_t rows) {
    size_.fetch_add(rows, std::memory_order_relaxed);
  }

  // Finding rows. Thread-safe.

  // Finds the rows of those ids that have one. FindEach runs on this thread.
  void FindEach(Span<const int64_t> ids, Span<RowRef> refs) const;
  void FindAll(Span<const int64_t> ids, Span<RowRef> refs,
               const ParallelFor* parallel) const;
  // State of one id during a search.
  struct Probe {
    uint32_t tag;
    RowRef ref;
    RowShard* shard;
    LeafIndex::Cursor cursor;  // after the cell of `ref`

    // Advances to the next row with this tag.
    void Advance() {
      ref.row = LeafIndex::Next(tag, &cursor);
      if (ref.found()) ref.meta = shard->rows.meta(ref.row);
    }
    // Returns the place of the id, if any.
    RowRef Confirm(int64_t id);
  };
  // Calls visit(first, run, probes) for runs of ids starting at ids[first],
  // inside an epoch guard, after load(rows, ref) has prefetched the first row
  // with each id's tag; that row may belong to another id.
  template <typename Load, typename Visit>
  void ForEachRun(Span<const int64_t> ids, const Load& load,
                  const Visit& visit) const;
  // Prefetches a row's metadata.
  static constexpr auto kLoadMeta = [](const RowStore&, const RowRef& ref) {
    __builtin_prefetch(ref.meta);
  };

  // Locks the row of an id that is not at `ref` (any more). Returns false,
  // without the lock, if it has no row. Requires an epoch guard.
  bool LockAgain(int64_t id, RowRef* ref) {
    const IdHash hash = HashOf(id);
    ref->shard = hash.shard;
    return shards_[hash.shard]->LockAgain(hash.tag, id, ref);
  }

  // Updates the places of rows that moved or were removed since they were
  // found. Requires all locks.
  void LookAgain(Span<const int64_t> ids, Span<RowRef> refs) const;

  // Adding and removing rows. These require the lock of the shard. The caller
  // counts the rows with AddToSize.

  // Reserves memory for one row per tag, so that RowStore::Allocate, Add and
  // Insert cannot fail. Returns ResourceExhausted if out of memory.
  Status Reserve(RowShard* shard, Span<const uint32_t> tags)
      LODESTAR_REQUIRES(shard->mutex);
  // Publishes an allocated and written row as the row of `id`.
  void Add(RowShard* shard, uint32_t tag, uint32_t row, int64_t id,
           int64_t last_seen, uint32_t frequency)
      LODESTAR_REQUIRES(shard->mutex) {
    Insert(shard, tag, row, id, last_seen, frequency);
    if (shard->order != nullptr) shard->order->Add(row);
  }
  void Remove(RowShard* shard, uint32_t tag, uint32_t row)
      LODESTAR_REQUIRES(shard->mutex) {
    if (shard->order != nullptr) shard->order->Remove(row);
    Erase(shard, tag, row);
  }
  // Adds and removes without the eviction lists, which are rebuilt later or has
  // already dropped the row.
  void Insert(RowShard* shard, uint32_t tag, uint32_t row, int64_t id,
              int64_t last_seen, uint32_t frequency)
      LODESTAR_REQUIRES(shard->mutex) {
    shard->rows.Publish(row, id, last_seen, frequency);
    shard->index.Insert(tag, row);
  }
  void Erase(RowShard* shard, uint32_t tag, uint32_t row)
      LODESTAR_REQUIRES(shard->mutex);
  // See RowStore::Compact.
  bool Compact(RowShard* shard, int64_t most, uint32_t* low)
      LODESTAR_REQUIRES(shard->mutex);

  // The methods below require all locks.

  // Frees all rows and returns their number. Requires: no snapshot is running.
  int64_t FreeAll();
  // See RowStore. Includes shared rows.
  Status ReserveSlots(const SlotShape& slots);
  void AttachSlots(const SlotShape& slots, Span<const float> inits);
  Status ReserveMarks();
  void StartMarking();
  void StopMarking();
  // Call if a change was not marked.
  void ForgetBase();
  // Declares that nothing has changed since snapshot `base`, and marks changes
  // from here on. There is no base if `base` is empty or memory for marks runs
  // out.
  void SetBase(const std::string& base);

  TableChanges& changes() { return changes_; }
  const TableChanges& changes() const { return changes_; }
  // Waits until no snapshot is running, and takes all locks. Call before
  // changing every row: images of all rows would double the memory.
  void LockBetweenSnapshots(ShardLocks* locks) const;

  // Copies a row out as number i of `count`, with its first slots [num_slots,
  // count, dim]. Requires: the row stays in place and holds `id`.
  struct Counts {
    uint32_t frequency;
    int64_t last_seen;
  };
  Counts CopyOut(const RowStore& rows, uint32_t row, int64_t id, int64_t i,
                 int64_t count, int64_t num_slots, Numbers* values,
                 Numbers* slots) const;
  // Copies a row in; empty arrays leave the row as it is. Requires the row
  // lock, unless the row is not visible yet.
  void CopyIn(const NumbersView& values, const NumbersView& slots, int64_t i,
              int64_t count, RowStore* rows, uint32_t row);
  // Draws the initial value of an id, and writes it into a row (with the
  // requirements of CopyIn, and of a store with stored().is_same()),
  // respectively.
  void Draw(const RowInitializer& initializer, int64_t id, void* value) const;
  void DrawInto(const RowInitializer& initializer, int64_t id, RowStore* rows,
                uint32_t row);

 private:
  // Calls visit(rows) for the stores of all shards and then for the shared
  // rows.
  template <typename Visit>
  Status ForEachStore(const Visit& visit);

  const int dim_;
  const RowType type_;
  const RowStorage storage_;
  const int64_t row_bytes_;
  const int64_t computed_bytes_;
  const EvictionPolicy eviction_;
  const uint64_t hash_key_ = ProcessHashKey();
  Arena arena_;
  mutable EpochDomain epochs_;
  std::vector<std::unique_ptr<RowShard>> shards_;
  std::unique_ptr<RowStore> shared_;
  TableChanges changes_;
  std::atomic<int64_t> size_{0};
};

inline RowRef ShardedRows::Probe::Confirm(int64_t id) {
  const bool any = ref.found();
  while (ref.found() && !RowStore::Holds(ref.meta, id)) Advance();
  if (any && !ref.found()) {
    // Another id's row, or a row that has moved.
    ref.row = shard->Find(tag, id);
    if (ref.found()) ref.meta = shard->rows.meta(ref.row);
  }
  return ref;
}

template <typename Load, typename Visit>
void ShardedRows::ForEachRun(Span<const int64_t> ids, const Load& load,
                             const Visit& visit) const {
  // Three runs are in flight: one waits for its index cells, one for its rows,
  // and one is visited.
  constexpr int kStages = 3;
  Probe probes[kStages][kRun];
  const auto run = [&](int64_t number) {
    const int64_t begin = number * kRun;
    return ids.subspan(begin, std::min<int64_t>(kRun, ids.size() - begin));
  };
  const int64_t runs = (ids.size() + kRun - 1) / kRun;
  EpochDomain::Guard guard(&epochs_);
  for (int64_t step = 0; step < runs + kStages - 1; ++step) {
    if (step < runs) {
      const Span<const int64_t> begun = run(step);
      for (int i = 0; i < begun.size(); ++i) {
        Probe& probe = probes[step % kStages][i];
        const IdHash hash = HashOf(begun[i]);
        probe.tag = hash.tag;
        probe.ref.shard = hash.shard;
        probe.shard = shards_[hash.shard].get();
        probe.cursor = probe.shard->index.Begin(hash.tag);
        LeafIndex::Prefetch(probe.cursor);
      }
    }
    const int64_t second = step - 1;
    if (second >= 0 && second < runs) {
      for (int i = 0; i < run(second).size(); ++i) {
        Probe& probe = probes[second % kStages][i];
        probe.Advance();
        if (probe.ref.found()) load(probe.shard->rows, probe.ref);
      }
    }
    const int64_t last = step - 2;
    if (last >= 0) visit(last * kRun, run(last), probes[last % kStages]);
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_SHARDED_ROWS_H_
