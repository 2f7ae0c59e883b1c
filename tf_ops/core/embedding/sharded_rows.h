// ShardedRows: where the rows of a table are.
//
//   id --Mix64--> high half: shard     low half: tag
//   shard:  LeafIndex (tag -> row index)  +  RowStore (segments of rows)
//
// A row is (shard, 32-bit index): value, optimizer slots, frequency and last
// step under one sequence word. The shard of an id, the order of rows and how
// the index grew never show in a result. Shared rows, which no id has for its
// own, lie in a RowStore beside the shards: number r is row r, of id r.
//
// A lookup, or a write to a row that is there, takes no lock of a shard. One
// that moves a row within the order in which rows are to go takes all of them.
//
// Locks are taken in this order. No one who waits for a snapshot or for
// ImageBudget holds one:
//
//   1. EmbeddingSnapshot's, by who begins, writes or ends it
//   2. being alone between steps (StepGate::Flip): snapshots that begin,
//      restores and imports that replace a table
//   3. of several tables those of the one at the lowest address first; of one
//      table:
//      a. the mutexes of its shards, ascending (ShardLocks): held by who adds,
//         removes or moves rows. All of them: by who puts rows in another
//         order, binds an optimizer, marks changes, or wants rows to stay where
//         they are. Of shared rows, what only one thread at a time may do
//         (RowStore) is done with shard 0's
//      b. the mutex of the sketch (Sightings)
//      c. that of TableChanges
//   4. that of the room which bags of wide rows share (embedding_pool.cc)
//   5. the word of one row (RowStore), for as long as a copy or an update takes
//   6. those of memory: Arena, EpochDomain; RowImages, then ImageBudget's, then
//      StepGate's own, which let go before they call anyone
//
// No loop of a ParallelFor waits for 1 to 3, but for those of a table that no
// one else has yet: who holds them runs loops, too.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_SHARDED_ROWS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_SHARDED_ROWS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_changes.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/memory/epoch.h"
#include "tf_ops/core/rows/eviction_list.h"
#include "tf_ops/core/rows/leaf_index.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

// Where a row lay when it was looked up; reads check that it still does.
struct RowRef {
  uint32_t shard = 0;
  uint32_t row = LeafIndex::kNoRow;
  RowMeta* meta = nullptr;  // of the row, if it is found
  bool found() const { return row != LeafIndex::kNoRow; }
};

// Rows of one shard. Its methods are for who is inside an epoch guard, or holds
// the mutex. No guard is taken inside another: there are so many for all
// threads.
struct RowShard {
  RowShard(int dim, RowType type, uint32_t number, Arena* arena,
           EpochDomain* epochs)
      : index(epochs, number), rows(dim, arena, number, type) {}

  // kNoRow: it has none.
  uint32_t Find(uint32_t tag, int64_t id) const;
  // Holds the row of `id`, which has gone from where `ref` says, if it has one
  // by now; false (and not held): it has none.
  bool LockAgain(uint32_t tag, int64_t id, RowRef* ref);
  // The row went away since it was found; the id may have another now.
  bool ReadAgain(uint32_t tag, int64_t id, void* row) const;
  // fn(row, id) of the resident rows. With the mutex.
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
  // Rows that have moved. Told after the index, before the old place is free:
  // who finds a row gone, and the number as it was before he looked, may
  // believe that the id has none.
  std::atomic<uint64_t> moves{0};
  RowStore rows;
  // Null: rows go in no order.
  std::unique_ptr<EvictionList> order LODESTAR_PT_GUARDED_BY(mutex);
  RemovedIds removed LODESTAR_GUARDED_BY(mutex);  // since the base
};

class ShardedRows;

// The mutexes of some shards, taken in ascending order.
class ShardLocks {
 public:
  explicit ShardLocks(const ShardedRows& rows);
  // Those with a count above 0.
  ShardLocks(const ShardedRows& rows, const std::vector<int64_t>& counts);
  // Takes them when it is told to, which cannot fail.
  ShardLocks(const ShardedRows& rows, std::defer_lock_t);
  void Lock();
  void Unlock();

 private:
  std::vector<std::unique_lock<Mutex>> locks_;
};

// A shard's rows from the first to go on, to be listed in that order.
class OrderRebuild {
 public:
  // Memory for it, which may throw; the rest cannot.
  void Reserve(const RowShard& shard) { rows_.reserve(shard.rows.live()); }
  // REQUIRES: the shard has an order with room for its rows.
  void Run(RowShard* shard) LODESTAR_REQUIRES(shard->mutex);

 private:
  std::vector<std::pair<EvictionKey, uint32_t>> rows_;
};

class ShardedRows {
 public:
  // With room for no row yet.
  ShardedRows(int dim, RowType type, int num_shards,
              const TablePolicies& policies);

  int dim() const { return dim_; }
  RowType type() const { return type_; }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t slot_bytes() const { return slot_bytes_; }  // of one slot of a row
  size_t num_shards() const { return shards_.size(); }
  RowShard& shard(size_t s) { return *shards_[s]; }
  const RowShard& shard(size_t s) const { return *shards_[s]; }
  // Null: there are no shared rows.
  RowStore* shared() { return shared_.get(); }
  const RowStore* shared() const { return shared_.get(); }
  EpochDomain* epochs() const { return &epochs_; }
  // Whether rows go in an order, and which.
  bool ordered() const { return order_.has_value(); }
  bool ordered_by(EvictionPolicy::Order order) const { return order_ == order; }

  struct IdHash {
    uint32_t shard;
    uint32_t tag;
  };
  IdHash HashOf(int64_t id) const {
    const uint64_t hash = Mix64(static_cast<uint64_t>(id));
    return {FastRange32(static_cast<uint32_t>(hash >> 32),
                        static_cast<uint32_t>(shards_.size())),
            static_cast<uint32_t>(hash)};
  }
  RowRef RefTo(uint32_t shard, uint32_t row) const {
    return {shard, row, shards_[shard]->rows.meta(row)};
  }
  // The indices of `ids` by shard.
  using IndexLists = std::vector<std::vector<int64_t>>;
  IndexLists GroupByShard(Span<const int64_t> ids) const;

  // Rows of the table. Who adds or removes some says so.
  int64_t size() const { return size_.load(std::memory_order_relaxed); }
  void AddToSize(int64_t rows) {
    size_.fetch_add(rows, std::memory_order_relaxed);
  }

  // Finding, by anyone.

  // Where the rows of ids are that have one. FindEach: on this thread.
  void FindEach(Span<const int64_t> ids, Span<RowRef> refs) const;
  void FindAll(Span<const int64_t> ids, Span<RowRef> refs,
               const ParallelFor* parallel) const;
  // An id on its way to its row.
  struct Probe {
    uint32_t tag;
    RowRef ref;
    RowShard* shard;
    LeafIndex::Cursor cursor;  // behind ref's cell

    // To the next row of its tag.
    void Advance() {
      ref.row = LeafIndex::Next(tag, &cursor);
      if (ref.found()) ref.meta = shard->rows.meta(ref.row);
    }
    // Where the id is, if anywhere.
    RowRef Confirm(int64_t id);
  };
  // visit(first, run, probes) for runs of ids from ids[first] on, inside an
  // epoch guard, with what `load(rows, ref)` asks for on its way for the first
  // row of each id's tag; it may be another id's.
  template <typename Load, typename Visit>
  void ForEachRun(Span<const int64_t> ids, const Load& load,
                  const Visit& visit) const;
  // A `load` of a row's metadata.
  static constexpr auto kLoadMeta = [](const RowStore&, const RowRef& ref) {
    __builtin_prefetch(ref.meta);
  };

  // Holds the row of an id that is not, or no more, where it was looked up;
  // false (and not held): it has none. Inside an epoch guard.
  bool LockAgain(int64_t id, RowRef* ref) {
    const IdHash hash = HashOf(id);
    ref->shard = hash.shard;
    return shards_[hash.shard]->LockAgain(hash.tag, id, ref);
  }

  // Under all locks: where rows are that have moved since they were found, and
  // which have gone.
  void LookAgain(Span<const int64_t> ids, Span<RowRef> refs) const;

  // Making and removing rows, under the lock of their shard. The caller counts
  // them (AddToSize).

  // Memory for a row of each tag: RowStore::Allocate, Add and Insert cannot
  // fail then. ResourceExhausted: out of memory.
  Status Reserve(RowShard* shard, Span<const uint32_t> tags)
      LODESTAR_REQUIRES(shard->mutex);
  // A row that was allocated and written becomes that of `id`.
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
  // The same without the order: it is to be made of all rows, or the row has
  // left it.
  void Insert(RowShard* shard, uint32_t tag, uint32_t row, int64_t id,
              int64_t last_seen, uint32_t frequency)
      LODESTAR_REQUIRES(shard->mutex) {
    shard->rows.Publish(row, id, last_seen, frequency);
    shard->index.Insert(tag, row);
  }
  void Erase(RowShard* shard, uint32_t tag, uint32_t row)
      LODESTAR_REQUIRES(shard->mutex);
  // Moves rows into the places of removed ones; see RowStore::Compact.
  bool Compact(RowShard* shard, int64_t most, uint32_t* low)
      LODESTAR_REQUIRES(shard->mutex);

  // Under all locks.

  // All rows, between two snapshots. Returns their number.
  int64_t FreeAll();
  // See RowStore; of shared rows, too.
  Status ReserveSlots(int64_t count);
  void AttachSlots(Span<const float> inits);
  Status ReserveMarks();
  void StartMarking();
  void StopMarking();
  // What has changed is not marked.
  void ForgetBase();
  // Nothing has changed since `base`, and what does from here on is marked. No
  // memory for marks, or empty: there is no base.
  void SetBase(const std::string& base);

  TableChanges& changes() { return changes_; }
  const TableChanges& changes() const { return changes_; }
  // Takes all locks while no snapshot is running. What changes every row does:
  // the images of all rows would be a second table.
  void LockBetweenSnapshots(ShardLocks* locks) const;

  // A row as number i of `count`, with its first slots [num_slots, count, dim].
  // REQUIRES: the row stays where it is, and holds `id`.
  struct Seen {
    uint32_t frequency;
    int64_t last_seen;
  };
  Seen CopyOut(const RowStore& rows, uint32_t row, int64_t id, int64_t i,
               int64_t count, int64_t num_slots, Numbers* values,
               Numbers* slots) const;
  // The opposite, by who holds the row, or of one that no one can see. Empty:
  // these stay as they are.
  void CopyIn(const NumbersView& values, const NumbersView& slots, int64_t i,
              int64_t count, RowStore* rows, uint32_t row);
  // The first value of an id; and into a row, by whom CopyIn is for.
  void Draw(const RowInitializer& initializer, int64_t id, void* value) const;
  void DrawInto(const RowInitializer& initializer, int64_t id, RowStore* rows,
                uint32_t row);

 private:
  // visit(rows) for those of all shards, then the shared ones.
  template <typename Visit>
  Status ForEachStore(const Visit& visit);

  const int dim_;
  const RowType type_;
  const int64_t row_bytes_;
  const int64_t slot_bytes_;
  const std::optional<EvictionPolicy::Order> order_;
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
    // A stranger's row, or one that has moved.
    ref.row = shard->Find(tag, id);
    if (ref.found()) ref.meta = shard->rows.meta(ref.row);
  }
  return ref;
}

template <typename Load, typename Visit>
void ShardedRows::ForEachRun(Span<const int64_t> ids, const Load& load,
                             const Visit& visit) const {
  // Three runs are under way: one waits for its cells of the index, one for
  // its rows, one is visited.
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
