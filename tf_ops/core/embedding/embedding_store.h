// EmbeddingStore: id -> row, sharded, growing by itself.
//
//   id --Mix64--> high half: shard     low half: tag
//   shard:  LeafIndex (tag -> row index)  +  RowStore (segments of rows)
//
// A row is (shard, 32-bit index): value, optimizer slots, frequency and last
// step under one sequence word. The shard of an id, the order of rows and how
// the index grew never show in a result.
//
// Threads: every method may run at the same time as any other. Look-ups and
// updates of resident rows take no lock of a shard, but for look-ups that count
// in a table whose rows go in an order (a cap, an age): they lock all shards
// while they reorder what they found. What adds or removes rows plans without
// one, then locks the shards it touches in ascending order, reserves memory in
// all of them, and commits, which cannot fail: a call that returns an error has
// changed nothing.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_changes.h"
#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/memory/epoch.h"
#include "tf_ops/core/rows/admission.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/eviction_list.h"
#include "tf_ops/core/rows/leaf_index.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/sparse_optimizer.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

// Where a row lay when it was looked up; reads check that it still does.
struct RowRef {
  uint32_t shard = 0;
  uint32_t row = LeafIndex::kNoRow;
  RowMeta* meta = nullptr;  // of the row, if it is found
  bool found() const { return row != LeafIndex::kNoRow; }
};

// What a missing id reads.
struct Missing {
  // kShared: the id's shared row; zeros where the table has none.
  enum class Kind { kZeros, kInitial, kVector, kShared };
  Kind kind = Kind::kZeros;
  const void* vector = nullptr;  // kVector: D numbers of the table's type
};

// K rows on their way through an update outside of the store, all numbers of
// the type that rows are computed as.
struct RowsForUpdate {
  int64_t* ids = nullptr;
  bool* shared = nullptr;       // the id is the number of a shared row
  void* gradients = nullptr;    // [K, D]
  void* values = nullptr;       // [K, D]
  void* slots = nullptr;        // [S, K, D]
  int64_t* versions = nullptr;  // equal as long as no one writes the row
};

// What comes back of them.
struct UpdatedRows {
  Span<const int64_t> ids;
  Span<const bool> shared;
  Span<const int64_t> versions;
  const void* values = nullptr;
  const void* slots = nullptr;
};

// Everything of N rows, ascending ids.
struct EmbeddingRows {
  std::vector<int64_t> ids;
  Numbers values;  // [N, D], of the table's type
  Numbers slots;   // [S, N, D], of the type that rows are computed as
  std::vector<int64_t> frequencies;
  std::vector<int64_t> last_seen;
  AttachedOptimizer optimizer;
  int64_t step = 0;
  int64_t seed = 0;
  int64_t salt = 0;
  bool own_step = false;  // SetStep drives the step
  // Ids that wait for a row, ascending, and the sketch that counts them.
  std::vector<int64_t> pending_ids;
  std::vector<int64_t> pending_sightings;
  std::vector<int64_t> pending_last_seen;
  std::vector<uint8_t> sketch;
  Numbers shared_values;  // [R, D], shared rows
  Numbers shared_slots;   // [S, R, D]
};

// The same as views, in any order of ids.
struct EmbeddingRowsView {
  Span<const int64_t> ids;
  NumbersView values;
  NumbersView slots;  // empty: rows without optimizer slots
  Span<const int64_t> frequencies;
  Span<const int64_t> last_seen;
  AttachedOptimizer optimizer;
  bool with_counters = false;  // step, seed, salt and own_step are given
  int64_t step = 0;
  int64_t seed = 0;
  int64_t salt = 0;
  bool own_step = false;
  Span<const int64_t> pending_ids;
  Span<const int64_t> pending_sightings;
  Span<const int64_t> pending_last_seen;
  Span<const uint8_t> sketch;
  NumbersView shared_values;  // empty: shared rows stay as they are
  NumbersView shared_slots;
};

// Events are counted since the table was made, or since the last reset.
struct EmbeddingStats {
  int64_t rows = 0;
  int64_t index_bytes = 0;
  int64_t row_bytes = 0;     // values and metadata
  int64_t slot_bytes = 0;    // optimizer slots
  int64_t policy_bytes = 0;  // what admission and eviction keep
  int64_t capacity = 0;      // rows that fit the segments there are
  int64_t max_rows = 0;      // the cap; 0: none
  int64_t pending = 0;       // ids that wait for a row
  // Events of training look-ups: ids, distinct ids of a batch, padding; and
  // distinct ids with and without a row when they were looked up.
  int64_t ids = 0;
  int64_t unique_ids = 0;
  int64_t padding = 0;
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t inserts = 0;
  int64_t admitted = 0;  // rows made by a sighting
  int64_t refused = 0;   // ids of a call that found no room under the cap
  int64_t evicted = 0;
  int64_t removed = 0;
  int64_t gradients_dropped = 0;
  int64_t nonfinite_gradients = 0;
  struct Shard {
    int64_t rows;
    int64_t bytes;
  };
  std::vector<Shard> shards;
};

// Everything of N ids, with a row or without.
struct InspectedIds {
  enum State : int64_t { kMissing = 0, kPending = 1, kResident = 2 };
  Numbers values;  // [N, D]; zeros without a row
  Numbers slots;   // [S, N, D]
  std::vector<std::string> slot_names;
  std::vector<int64_t> frequencies;  // sightings, of pending ids too
  std::vector<int64_t> last_seen;    // -1: not known
  std::vector<int64_t> shards;
  std::vector<int64_t> states;
};

class EmbeddingStore {
 public:
  // InvalidArgument: dim not in [1, 65536], num_shards not in [1, 4096], a
  // policy's number out of range.
  static Status Create(int64_t dim, int64_t num_shards,
                       const RowInitializer& initializer,
                       std::unique_ptr<EmbeddingStore>* out,
                       const TablePolicies& policies = TablePolicies(),
                       RowType type = RowType::kFloat32);

  // An empty table of the same dim, type, shards and policies, with the same
  // kind of initializer.
  // ResourceExhausted: out of memory.
  static Status CreateEmptyLike(const EmbeddingStore& like, int64_t seed,
                                int64_t salt,
                                std::unique_ptr<EmbeddingStore>* out);

  int dim() const { return dim_; }
  bool counts_occurrences() const {
    return policies_.admission.count_occurrences;
  }
  // Of the numbers of every row that goes in or out.
  RowType type() const { return type_; }
  // Of a row's numbers.
  int64_t row_bytes() const { return row_bytes_; }

  // Rows of `ids` ([N, D], any ids, repeats allowed), and whether each was
  // found if `found` is not null. Ids equal to *padding_id read zeros.
  void Find(Span<const int64_t> ids, const int64_t* padding_id,
            const Missing& missing, void* rows, bool* found,
            const ParallelFor* parallel) const;

  // Where the rows of ids are that have one.
  void FindAll(Span<const int64_t> ids, Span<RowRef> refs,
               const ParallelFor* parallel) const;

  struct SightingOptions {
    // Who gets a row.
    enum class Admit {
      kByPolicy,
      kAll,   // at once
      kNone,  // only sightings are counted
    };
    bool insert = false;  // make rows of ids that have none
    bool count = false;   // count sightings
    Admit admit = Admit::kByPolicy;
  };
  // Distinct ids of one table, and where their rows are: none for those that
  // admission holds back or that find no room under the cap. resident[i], if
  // wanted: whether unique_ids[i] had a row before. occurrences[i], where
  // counts_occurrences(): how often unique_ids[i] is in the batch.
  struct TableIds {
    EmbeddingStore* store = nullptr;
    Span<const int64_t> unique_ids;
    Span<RowRef> refs;
    char* resident = nullptr;
    Span<const uint32_t> occurrences = {};
  };
  // Rows are made in all of the tables, of which none comes twice, or in none.
  // ResourceExhausted: out of memory; nothing changed.
  static Status FindOrInsert(Span<const TableIds> in_tables,
                             const SightingOptions& options,
                             const ParallelFor* parallel);
  Status FindOrInsert(Span<const int64_t> unique_ids,
                      const SightingOptions& options, Span<RowRef> refs,
                      const ParallelFor* parallel, char* resident = nullptr,
                      Span<const uint32_t> occurrences = {}) {
    const TableIds ids = {this, unique_ids, refs, resident, occurrences};
    return FindOrInsert(Span<const TableIds>(&ids, 1), options, parallel);
  }

  // Rows of ids[begin, end), or what missing ids read: id i lies at
  // refs[positions[i]]; padding reads zeros. On this thread.
  void ReadRows(Span<const int64_t> ids, Span<const int64_t> positions,
                Span<const RowRef> refs, int64_t begin, int64_t end,
                const Missing& missing, void* rows) const;

  // Updates the rows of distinct ids with their gradients [U, D], numbers of
  // ComputeType(type()), attaching the optimizer at its first call, then sets
  // the step to `next_step`, as MoveStep takes it. Ids
  // without a row are dropped and counted, or made first. InvalidArgument: no
  // optimizer has this name, or `slot_inits` has not a number a slot.
  // FailedPrecondition: another optimizer is attached. ResourceExhausted: out
  // of memory; nothing changed.
  Status Apply(Span<const int64_t> unique_ids, const void* gradients,
               const std::string& name, const SparseOptimizer& optimizer,
               Span<const float> slot_inits, bool create_missing,
               int64_t next_step, const ParallelFor* parallel);
  // FailedPrecondition: another optimizer is attached.
  Status CheckOptimizer(const AttachedOptimizer& optimizer) const;

  // An update outside of the store: the rows of distinct ids come out with
  // their gradients [N, D] and go back, unless someone has written to them in
  // between; those come out again, until all are written.
  //
  // Attaches the optimizer as Apply does, and drops and counts gradients of
  // ids without a row. Gradients that go to one shared row are summed.
  // allocate(K, out): memory for K rows, before anything is written.
  // InvalidArgument: the optimizer is not a replayed one, or no such shared
  // row. Else as Apply.
  using AllocateUpdate = std::function<Status(int64_t, RowsForUpdate*)>;
  Status GatherForUpdate(Span<const int64_t> ids, Span<const bool> shared,
                         const void* gradients,
                         const AttachedOptimizer& optimizer,
                         const AllocateUpdate& allocate,
                         const ParallelFor* parallel);
  // Writes what has not changed since; changed[k]: row k has, and is as it
  // was. Then sets the step to `next_step`, as MoveStep takes it.
  Status AssignIfUnchanged(const UpdatedRows& rows,
                           const AttachedOptimizer& optimizer,
                           int64_t next_step, bool* changed,
                           const ParallelFor* parallel);
  bool has_shared_rows() const { return shared_ != nullptr; }
  // The shared row that each of the ids without a row reads, with the id's
  // index, in ascending order.
  using ColdIds = std::vector<std::pair<uint32_t, int64_t>>;
  ColdIds ReadersOfSharedRows(Span<const int64_t> ids) const;
  void CountNonfiniteGradients(int64_t count) {
    nonfinite_gradients_.fetch_add(count, std::memory_order_relaxed);
  }

  // The last of equal ids wins; optimizer slots of existing rows are kept.
  // New ids ask no admission, but find room under the cap or are refused.
  Status InsertOrAssign(Span<const int64_t> ids, const void* rows,
                        const ParallelFor* parallel);
  // The number of rows removed.
  Status Remove(Span<const int64_t> ids, int64_t* removed);
  // Everything, between two snapshots.
  Status Clear();
  // Rows only; where a snapshot runs, row by row beside it.
  Status RemoveAll();

  // Removes the rows that `policy` names, but none that was seen in this step;
  // a max_age forgets pending ids of that age too.
  // ResourceExhausted: out of memory; nothing changed.
  Status Evict(const EvictionPolicy& policy, int64_t* evicted,
               const ParallelFor* parallel);
  // The same by the table's own policy.
  Status Evict(int64_t* evicted, const ParallelFor* parallel) {
    return Evict(policies_.eviction, evicted, parallel);
  }

  // Moves rows into the places of removed ones and gives the memory that is
  // then free back to the system; *returned is by how many bytes that lowers
  // what Stats tells. Nothing else changes. It holds one shard at a time, and
  // for no longer than some thousand rows, or a leaf of the index, take.
  // ResourceExhausted: out of memory for a smaller leaf; what was moved by then
  // stays moved, which nothing shows but Stats.
  Status Compact(int64_t* returned);

  int64_t size() const { return size_.load(std::memory_order_relaxed); }
  // 0 for an id without a row.
  void Frequency(Span<const int64_t> ids, Span<int64_t> frequencies,
                 const ParallelFor* parallel) const;
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  // From now on the step moves by this alone, not by Apply.
  void SetStep(int64_t step);
  // Apply moves the step again.
  void ReleaseStep() { own_step_.store(false, std::memory_order_relaxed); }
  // After an update; -1 advances by one. Nothing if SetStep drives it.
  static constexpr int64_t kSameStep = -2;
  void MoveStep(int64_t next_step);
  // Counts a batch of `ids` ids, of which `padding` were padding, that had
  // `unique` distinct ones.
  void CountBatch(int64_t ids, int64_t unique, int64_t padding) {
    ids_.fetch_add(ids, std::memory_order_relaxed);
    unique_ids_.fetch_add(unique, std::memory_order_relaxed);
    padding_.fetch_add(padding, std::memory_order_relaxed);
  }
  EmbeddingStats Stats() const;
  // Takes events off that Stats has told of.
  void SubtractEvents(const EmbeddingStats& stats);
  // Has counted what `like` has.
  void CopyEvents(const EmbeddingStore& like);
  // ResourceExhausted: out of memory.
  Status Inspect(Span<const int64_t> ids, InspectedIds* out) const;
  // Multiplies frequencies with `rate`, rounding down; those of this step stay
  // above 0.
  // InvalidArgument: rate not in [0, 1]. ResourceExhausted: out of memory;
  // nothing changed.
  Status DecayFrequencies(double rate, const ParallelFor* parallel);

  // with_values: false gives the ids, and nothing else of the rows, which Find
  // then reads piece by piece.
  // ResourceExhausted: out of memory.
  Status Export(bool with_slots, EmbeddingRows* out,
                const ParallelFor* parallel, bool with_values = true) const;
  // replace: the table holds exactly `rows` afterwards, counters included;
  // else rows are added to it, or overwrite those of their ids, whose slots
  // start anew if none are given. Pending ids, sketch and shared rows are read
  // by replace only.
  // InvalidArgument: an id twice, sizes that do not fit, numbers of another
  // type than the table's, pending ids or a
  // sketch of another admission, another number of shared rows.
  // FailedPrecondition: slots of another optimizer than the attached one, or
  // more rows than the cap.
  Status Import(const EmbeddingRowsView& rows, bool replace,
                const ParallelFor* parallel);

  // The snapshot that the next delta follows; empty: the next one is whole.
  std::string base() const { return changes_.base(); }
  // The table is as `base` says, and marks what changes from here on; without
  // memory for marks the next snapshot is whole. Empty: it marks nothing.
  // REQUIRES: no other call changes rows meanwhile.
  void SetBase(const std::string& base);

 private:
  friend class EmbeddingSnapshot;
  friend class SnapshotDelta;
  friend class SnapshotLoader;
  friend class SnapshotLoading;

  struct Shard {
    Shard(int dim, RowType type, uint32_t number, Arena* arena,
          EpochDomain* epochs)
        : index(epochs, number), rows(dim, arena, number, type) {}
    mutable std::mutex mutex;  // held by who adds, removes or moves rows
    LeafIndex index;
    // Rows that have moved. Told after the index, before the old place is free:
    // who finds a row gone, and the number as it was before he looked, may
    // believe that the id has none.
    std::atomic<uint64_t> moves{0};
    RowStore rows;
    std::unique_ptr<EvictionList> order;  // null: rows go in no order
    // Null: every id is admitted. With a sketch: the ids of this step.
    std::unique_ptr<PendingIds> pending;
    int64_t pending_step = 0;
    RemovedIds removed;  // since the base
  };
  struct Place {
    uint32_t shard;
    uint32_t tag;
  };
  // The mutexes of some shards, taken in ascending order.
  class ShardLocks {
   public:
    explicit ShardLocks(const EmbeddingStore& store);
    // Those with a count above 0.
    ShardLocks(const EmbeddingStore& store, const std::vector<int64_t>& counts);
    // Takes them when it is told to, which cannot fail.
    ShardLocks(const EmbeddingStore& store, std::defer_lock_t);
    void Lock();
    void Unlock();

   private:
    std::vector<std::unique_lock<std::mutex>> locks_;
  };

  EmbeddingStore(int dim, int num_shards, const RowInitializer& initializer,
                 const TablePolicies& policies, RowType type);

  Place PlaceOf(int64_t id) const;
  // The next three inside an epoch guard or the shard's mutex. No guard is
  // taken inside another: there are so many for all threads.
  static uint32_t FindRow(const Shard& shard, uint32_t tag, int64_t id);
  // Holds the row of `id`, which has gone from where `ref` says, if it has one
  // by now; false (and not held): it has none.
  bool LockAgain(int64_t id, RowRef* ref) const;
  // The row went away since it was found; the id may have another now.
  bool ReadAgain(const Shard& shard, int64_t id, void* row) const;
  // Under all locks: where rows are that have moved since they were found, and
  // which have gone.
  void LookAgain(Span<const int64_t> ids, Span<RowRef> refs) const;
  RowRef RefTo(uint32_t shard, uint32_t row) const {
    return {shard, row, shards_[shard]->rows.meta(row)};
  }
  // See embedding_store_run.h.
  struct Probe;
  static void Advance(Probe* probe);
  static RowRef Confirm(int64_t id, Probe* probe);
  template <typename Load, typename Visit>
  void ForEachRun(Span<const int64_t> ids, const Load& load,
                  const Visit& visit) const;
  void ReadMissing(int64_t id, const Missing& missing, void* row) const;
  void DrawRow(int64_t id, void* row) const;

  // Shared rows, if there are any.
  Status MakeSharedRows();
  uint32_t SharedRowOf(int64_t id) const {
    return static_cast<uint32_t>(Mix64(static_cast<uint64_t>(id)) %
                                 policies_.shared_rows);
  }
  const RowStore& shared_rows() const { return shared_->shards_[0]->rows; }
  // Memory for this optimizer's slots, then the rest, which cannot fail.
  Status ReserveShared(const AttachedOptimizer& optimizer);
  void AttachShared(AttachedOptimizer optimizer);
  // The gradients of the ids at the second of each of `cold`, summed by the
  // shared row, its first, in the order of the ids; sorts `cold`.
  template <typename T>
  void ApplyShared(ColdIds* cold, const ComputeOf<T>* gradients,
                   uint64_t attachment, const SparseOptimizer& optimizer);
  // Makes the slots and rows that an update asks for, and gives the gradients
  // of ids that still have none, marked in `is_cold`, to shared rows.
  Status PrepareApply(Span<const int64_t> unique_ids, const void* gradients,
                      const AttachedOptimizer& attached,
                      const SparseOptimizer& optimizer, bool create_missing,
                      const ParallelFor* parallel, std::vector<char>* is_cold);
  // sum: that of the gradients of (*cold)[first]'s row. Returns the next row's
  // first.
  template <typename C>
  size_t SumShared(const ColdIds& cold, size_t first, const C* gradients,
                   C* sum) const;
  Status CheckSharedNumber(Span<const int64_t> ids, Span<const bool> shared,
                           int64_t i) const;
  void ExportShared(EmbeddingRows* out) const;
  Status CheckShared(const EmbeddingRowsView& rows) const;
  void ImportShared(const EmbeddingRowsView& rows);
  void ResetShared();

  // The parts of Apply, for rows of T.
  // By who holds the row's word. value: room for the row.
  template <typename T>
  void UpdateRow(const RowStore& rows, uint32_t row,
                 const ComputeOf<T>* gradient, const SparseOptimizer& optimizer,
                 ComputeOf<T>* value) const;
  template <typename T>
  void UpdateRows(Span<const int64_t> unique_ids,
                  const std::vector<char>& is_cold,
                  const ComputeOf<T>* gradients, uint64_t attachment,
                  const SparseOptimizer& optimizer,
                  const ParallelFor* parallel);

  // FindAll on this thread.
  void FindEach(Span<const int64_t> ids, Span<RowRef> refs) const;

  struct TableSighting;
  static Status InsertInAll(Span<const TableIds> tables,
                            Span<const TableSighting> sightings,
                            const SightingOptions& options,
                            const ParallelFor* parallel);
  // Counts a sighting of each row at step `now`, once; or its `occurrences`.
  void Touch(Span<const int64_t> ids, Span<const RowRef> refs, int64_t now,
             Span<const uint32_t> occurrences) const;
  // The same of rows that go in an order, under all locks; `members` from
  // GroupByShard(ids).
  using IndexLists = std::vector<std::vector<int64_t>>;
  void TouchInOrder(Span<const int64_t> ids, const IndexLists& members,
                    Span<const RowRef> refs, int64_t now,
                    Span<const uint32_t> occurrences,
                    const ParallelFor* parallel);
  // Whether a sighting at step `now` is still to be counted.
  static bool IsToCount(const RowMeta* meta, int64_t now,
                        Span<const uint32_t> occurrences);
  static void CountSighting(RowMeta* meta, int64_t now, int64_t i,
                            Span<const uint32_t> occurrences);
  IndexLists GroupByShard(Span<const int64_t> ids) const;

  // Adds rows for the ids at `indices` that have none; fill(index, ref) writes
  // value and slots before anyone can see them. Rows in `refs` are not evicted
  // for it. If `optimizer` is given and the table has none yet, it is attached
  // in the same way: both or nothing.
  struct InsertOptions {
    int64_t now = 0;         // the new rows' last sighting
    bool count = false;      // this is a sighting
    bool admission = false;  // of which an id may need several
    SightingOptions::Admit admit = SightingOptions::Admit::kByPolicy;
    // As many sightings; whoever gets a row has them counted afterwards.
    Span<const uint32_t> occurrences;
    const std::function<Status()>* before_commit = nullptr;
    bool refuse_excess = false;  // fail where the cap binds
    // In place of the above, a number for each of the ids.
    Span<const int64_t> last_seen;
    Span<const int64_t> frequencies;
  };
  using Fill = std::function<void(int64_t index, const RowRef& ref)>;
  Status InsertMissing(Span<const int64_t> ids,
                       const std::vector<int64_t>& indices,
                       const InsertOptions& options, Span<RowRef> refs,
                       const ParallelFor* parallel, const Fill& fill,
                       const AttachedOptimizer* optimizer = nullptr);
  bool UsesAdmission() const {
    return policies_.admission.kind != AdmissionPolicy::Kind::kAll;
  }
  // The parts of InsertMissing, under the locks of its shards.
  struct Sighting;
  struct ShardPlan;
  struct RoomPlan;
  void PlanSightings(Span<const int64_t> ids, const InsertOptions& options,
                     int shard, ShardPlan* plan) const;
  // With a sketch only.
  static void ForgetOtherSteps(Shard* shard, int64_t now);
  Status CheckRoom(int64_t rows) const;
  Status ReservePlan(int shard, const ShardPlan& plan, int64_t excess);
  void MakeRoom(Span<const int64_t> ids, int64_t now, Span<const RowRef> refs,
                std::vector<ShardPlan>* plans, RoomPlan* room);
  // Evicts the `count` rows that go first, or all that may go.
  int64_t EvictFirst(int64_t count, int64_t now, RoomPlan* room);
  void CommitSightings(Span<const int64_t> ids, int64_t now, int shard,
                       const ShardPlan& plan);
  static int64_t BytesOf(const Shard& shard);
  // Under all locks, between two snapshots.
  void FreeAllRows();
  // Under the shard's lock.
  void RemoveRow(Shard* shard, uint32_t tag, uint32_t row);
  // The end of it: the row is in no list and in no index any more.
  void FreeRow(Shard* shard, uint32_t row);

  // What changes every row locks all shards while no snapshot is running: the
  // images of all rows would be a second table.
  void LockBetweenSnapshots(ShardLocks* locks) const;
  // Under all locks: what has changed is not marked.
  void ForgetBase();
  // Under all locks, those of shared rows too.
  Status ReserveMarks();
  void StartMarking();
  void StopMarking();
  // Under all locks: the rows that `policy` names, by shard.
  using RowLists = std::vector<std::vector<uint32_t>>;
  Status FindVictims(const EvictionPolicy& policy, int64_t now,
                     RowLists* victims, const ParallelFor* parallel) const;
  bool FindOldest(int64_t max_age, int64_t now, RowLists* victims) const;
  Status ForgetPending(int64_t max_age, int64_t now);
  void FillNewRow(int64_t id, const RowRef& ref) const;
  void FillSlots(const RowRef& ref) const;
  // With every shard's mutex: memory for its slots, then the rest, which cannot
  // fail.
  Status ReserveOptimizer(const AttachedOptimizer& optimizer);
  void Attach(AttachedOptimizer optimizer);
  // Which attachment of this optimizer is in force; kNoAttachment: none.
  uint64_t AttachmentOf(const AttachedOptimizer& optimizer) const;
  void ExportPending(EmbeddingRows* out) const;
  Status CheckPending(const EmbeddingRowsView& rows) const;
  std::vector<int64_t> OrderOfImport(const EmbeddingRowsView& rows) const;
  Status BuildPending(const EmbeddingRowsView& rows,
                      std::vector<std::unique_ptr<PendingIds>>* pending,
                      std::vector<uint8_t>* sketch) const;
  Status ReplaceAll(const EmbeddingRowsView& rows, const ParallelFor* parallel);
  Status Merge(const EmbeddingRowsView& rows, const ParallelFor* parallel);
  void WriteImported(const EmbeddingRowsView& rows, int64_t i,
                     const RowRef& ref) const;

  const int dim_;
  const RowType type_;
  const int64_t row_bytes_;
  const int64_t slot_bytes_;  // of one slot of a row
  const TablePolicies policies_;
  RowInitializer initializer_;
  Arena arena_;
  mutable EpochDomain epochs_;
  std::vector<std::unique_ptr<Shard>> shards_;

  mutable std::mutex sketch_mutex_;  // taken after every shard's
  std::unique_ptr<CountingSketch> sketch_;
  // Of one shard, where row number r has id r; null: there are none.
  std::unique_ptr<EmbeddingStore> shared_;
  TableChanges changes_;

  mutable std::mutex optimizer_mutex_;  // taken after every shard's
  AttachedOptimizer optimizer_;
  std::atomic<bool> attached_{false};
  static constexpr uint64_t kNoAttachment = 0;
  // Tells an update that an import has changed the optimizer under it.
  std::atomic<uint64_t> attachment_{kNoAttachment};

  std::atomic<int64_t> size_{0};
  std::atomic<int64_t> step_{0};
  std::atomic<bool> own_step_{false};
  std::atomic<int64_t> ids_{0};
  std::atomic<int64_t> unique_ids_{0};
  std::atomic<int64_t> padding_{0};
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> misses_{0};
  std::atomic<int64_t> inserts_{0};
  std::atomic<int64_t> removed_{0};
  std::atomic<int64_t> admitted_{0};
  std::atomic<int64_t> refused_{0};
  std::atomic<int64_t> evicted_{0};
  std::atomic<int64_t> gradients_dropped_{0};
  std::atomic<int64_t> nonfinite_gradients_{0};
};

inline EmbeddingStore::Place EmbeddingStore::PlaceOf(int64_t id) const {
  const uint64_t hash = Mix64(static_cast<uint64_t>(id));
  return {FastRange32(static_cast<uint32_t>(hash >> 32),
                      static_cast<uint32_t>(shards_.size())),
          static_cast<uint32_t>(hash)};
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_H_
