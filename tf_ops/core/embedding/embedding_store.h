// EmbeddingStore: an embedding table that grows on demand, made of the parts in
// table_parts.h. Thread-safe: any methods may run concurrently. Lookups and
// updates of resident rows take no shard lock, except that a table with a cap
// or an age limit locks all its shards once per counting lookup. Calls that add
// or remove rows plan, lock, reserve memory and then commit, which cannot fail:
// a call that returns an error has changed nothing. docs/internals/storage.md
// tells the whole story.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_rows.h"
#include "tf_ops/core/embedding/found_rows.h"
#include "tf_ops/core/embedding/insert_plan.h"
#include "tf_ops/core/embedding/occurrence_counter.h"
#include "tf_ops/core/embedding/rows_applier.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/embedding/shared_rows.h"
#include "tf_ops/core/embedding/table_parts.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/sparse_optimizer.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

// What a missing id reads.
struct Missing {
  // kShared: the id's shared row, or zeros in a table without shared rows.
  enum class Kind { kZeros, kInitial, kVector, kShared };
  Kind kind = Kind::kZeros;
  const void* vector = nullptr;  // kVector: D values of the table's type
};

// K rows on their way through an update computed outside of the store. All
// arrays have the type that rows are computed in.
struct RowsForUpdate {
  int64_t* ids = nullptr;
  bool* shared = nullptr;       // the id is the number of a shared row
  void* gradients = nullptr;    // [K, D]
  void* values = nullptr;       // [K, D]
  void* slots = nullptr;        // [S, K, D]
  int64_t* versions = nullptr;  // unchanged while no one writes the row
};

// Updated rows on their way back.
struct UpdatedRows {
  Span<const int64_t> ids;
  Span<const bool> shared;
  Span<const int64_t> versions;
  const void* values = nullptr;
  const void* slots = nullptr;
};

// Events count from the creation of the table or from the last reset.
struct EmbeddingStats {
  int64_t rows = 0;
  int64_t index_bytes = 0;
  int64_t row_bytes = 0;     // values and metadata
  int64_t slot_bytes = 0;    // optimizer slots
  int64_t policy_bytes = 0;  // memory of admission and eviction
  int64_t capacity = 0;      // rows that fit into the allocated segments
  int64_t max_rows = 0;      // the cap; 0: none
  int64_t pending = 0;       // ids waiting for a row
  std::array<int64_t, kNumEvents> events = {};
  int64_t count(Event event) const { return events[static_cast<int>(event)]; }
  struct Shard {
    int64_t rows;
    int64_t bytes;
  };
  std::vector<Shard> shards;
};

// All data of N ids, resident or not.
struct InspectedIds {
  enum State : int64_t { kMissing = 0, kPending = 1, kResident = 2 };
  Numbers values;  // [N, D]; zeros for missing ids
  Numbers slots;   // [S, N, D]
  std::vector<std::string> slot_names;
  std::vector<int64_t> frequencies;  // occurrences, also of pending ids
  std::vector<int64_t> last_seen;    // -1: unknown
  std::vector<int64_t> shards;
  std::vector<int64_t> states;
};

class EmbeddingStore {
 public:
  // Returns InvalidArgument if dim is not in [1, 65536], num_shards is not in
  // [1, 4096], or a parameter of a policy is out of range.
  static Status Create(int64_t dim, int64_t num_shards,
                       const RowInitializer& initializer,
                       std::unique_ptr<EmbeddingStore>* out,
                       const TablePolicies& policies = TablePolicies(),
                       RowType type = RowType::kFloat32);

  // Creates an empty table with the dim, type, shards, policies and kind of
  // initializer of `like`. Returns ResourceExhausted if out of memory.
  static Status CreateEmptyLike(const EmbeddingStore& like, int64_t seed,
                                int64_t salt,
                                std::unique_ptr<EmbeddingStore>* out);

  int dim() const { return table_.rows.dim(); }
  bool counts_occurrences() const {
    return table_.policies.admission.count_occurrences;
  }
  // Type of all values passed in and out.
  RowType type() const { return table_.rows.type(); }
  // Size of a row's values.
  int64_t row_bytes() const { return table_.rows.row_bytes(); }

  // Reads the rows of `ids` into `rows` ([N, D]; ids may repeat) and whether
  // each was found into `found` unless it is null. Ids equal to *padding_id
  // read zeros. Returns counts to be passed to CountReads, if the caller counts
  // reads.
  ReadCounts Find(Span<const int64_t> ids, const int64_t* padding_id,
                  const Missing& missing, void* rows, bool* found,
                  const ParallelFor* parallel) const;
  void CountReads(const ReadCounts& reads) const {
    table_.events.AddReads(reads);
  }

  // Finds the rows of those ids that have one.
  void FindAll(Span<const int64_t> ids, Span<RowRef> refs,
               const ParallelFor* parallel) const {
    table_.rows.FindAll(ids, refs, parallel);
  }

  using LookupOptions = lodestar::LookupOptions;
  // Unique ids of one table and the rows found for them. A row is absent if
  // admission holds the id back or if it found no room under the cap.
  // resident[i], if not empty: whether unique_ids[i] had a row before.
  // occurrences[i], with counts_occurrences(): how often unique_ids[i] occurs
  // in the batch.
  struct TableIds {
    EmbeddingStore* store = nullptr;
    Span<const int64_t> unique_ids;
    Span<RowRef> refs;
    char* resident = nullptr;
    Span<const uint32_t> occurrences = {};
  };
  // Creates rows in all of the tables or in none. Requires: the tables are
  // different. Returns ResourceExhausted if out of memory; nothing has changed
  // then.
  static Status FindOrInsert(Span<const TableIds> in_tables,
                             const LookupOptions& options,
                             const ParallelFor* parallel);
  Status FindOrInsert(Span<const int64_t> unique_ids,
                      const LookupOptions& options, Span<RowRef> refs,
                      const ParallelFor* parallel, char* resident = nullptr,
                      Span<const uint32_t> occurrences = {}) {
    const TableIds ids = {this, unique_ids, refs, resident, occurrences};
    return FindOrInsert(Span<const TableIds>(&ids, 1), options, parallel);
  }

  // Reads ids[begin, end) on this thread: id i is at refs[positions[i]];
  // missing ids read `missing`, and padding reads zeros.
  void ReadRows(Span<const int64_t> ids, Span<const int64_t> positions,
                Span<const RowRef> refs, int64_t begin, int64_t end,
                const Missing& missing, void* rows) const;

  // Keeps the result of a lookup for the update that follows.
  void KeepFound(FoundBatch batch) { found_.Keep(std::move(batch)); }
  FoundBatch TakeFound(Span<const int64_t> ids) { return found_.Take(ids); }

  // An update of rows of one table.
  struct TableUpdate {
    EmbeddingStore* store = nullptr;
    Span<const int64_t> unique_ids;
    const void* gradients = nullptr;  // [U, D], of ComputeType(type())
    std::string name;                 // name of the optimizer
    const SparseOptimizer* optimizer = nullptr;
    Span<const float> slot_inits;
    bool create_missing = false;
    int64_t next_step = 0;
    // Possible places of the rows; empty: search.
    Span<const RowRef> refs;
  };
  // Updates rows of unique ids with their gradients, attaches the optimizer on
  // its first call, and then moves the steps of all tables as MoveSteps does.
  // Ids without a row are dropped and counted, or get a row first. Returns
  // InvalidArgument for an unknown optimizer or a wrong number of `slot_inits`,
  // FailedPrecondition if another optimizer is attached, and ResourceExhausted
  // if out of memory. After an error no row has changed, and *failed, if not
  // null, is the index of the update that failed.
  static Status Apply(Span<const TableUpdate> updates,
                      const ParallelFor* parallel, int64_t* failed = nullptr);
  // Updates this table only.
  Status Apply(Span<const int64_t> unique_ids, const void* gradients,
               const std::string& name, const SparseOptimizer& optimizer,
               Span<const float> slot_inits, bool create_missing,
               int64_t next_step, const ParallelFor* parallel,
               Span<const RowRef> refs = {}) {
    const TableUpdate update = {this,           unique_ids, gradients,
                                name,           &optimizer, slot_inits,
                                create_missing, next_step,  refs};
    return Apply(Span<const TableUpdate>(&update, 1), parallel);
  }
  // Returns FailedPrecondition if another optimizer is attached.
  Status CheckOptimizer(const AttachedOptimizer& optimizer) const {
    return table_.optimizer.Check(optimizer);
  }

  // Returns true if RestartSlots would drop slots.
  bool NeedsRestart(const AttachedOptimizer& optimizer, KeptSlots keep) const {
    return table_.optimizer.bound() &&
           Restarts(table_.optimizer.optimizer(), optimizer, keep);
  }
  // Attaches `optimizer` with fresh slots in place of the existing ones, unless
  // it keeps these. *former: the optimizer whose slots were dropped; empty if
  // nothing was dropped. *done is false, and nothing has changed, while a
  // snapshot is running. Returns ResourceExhausted if out of memory; nothing
  // has changed then. Requires: no step is inside StepGate.
  Status RestartSlots(const AttachedOptimizer& optimizer, KeptSlots keep,
                      bool* done, std::string* former);
  void WaitForSnapshot() const { table_.rows.changes().WaitForEnd(); }

  // An update computed outside of the store (an unfused optimizer). Gathers the
  // rows of unique ids with their gradients [N, D]; AssignIfUnchanged writes
  // them back unless they were written in the meantime, and the caller repeats
  // with those.
  //
  // Attaches the optimizer as Apply does, and drops and counts gradients of ids
  // without a row. Sums gradients of ids that share a row. Calls allocate(K,
  // out) for K rows before anything is written. Returns InvalidArgument if the
  // optimizer is not an unfused one or a shared row does not exist; otherwise
  // the errors of Apply.
  using AllocateUpdate = std::function<Status(int64_t, RowsForUpdate*)>;
  Status GatherForUpdate(Span<const int64_t> ids, Span<const bool> shared,
                         const void* gradients,
                         const AttachedOptimizer& optimizer,
                         const AllocateUpdate& allocate,
                         const ParallelFor* parallel);
  // Writes the rows that have not changed since. Sets changed[k] if row k had
  // changed and was not written. Then moves the step to `next_step` as MoveStep
  // does.
  Status AssignIfUnchanged(const UpdatedRows& rows,
                           const AttachedOptimizer& optimizer,
                           int64_t next_step, bool* changed,
                           const ParallelFor* parallel);
  bool has_shared_rows() const { return table_.shared.any(); }
  // Readers among the ids that have no row.
  SharedRows::Readers ReadersOfSharedRows(Span<const int64_t> ids) const;
  void CountNonfiniteGradients(int64_t count) {
    table_.events.Add(Event::kNonfiniteGradients, count);
  }

  // Assigns rows; the last of equal ids wins, and existing optimizer slots are
  // kept. New ids bypass admission but are refused if the table has no room
  // under its cap.
  Status InsertOrAssign(Span<const int64_t> ids, const void* rows,
                        const ParallelFor* parallel);
  // Returns the number of removed rows in *removed.
  Status Remove(Span<const int64_t> ids, int64_t* removed);
  // Removes all rows, pending ids and the sketch, and resets shared rows. Step
  // and events stay. Waits for a running snapshot.
  Status Clear();
  // Removes the rows only, one by one while a snapshot runs.
  Status RemoveAll();

  // Evicts the rows that `policy` selects, except those seen in this step. A
  // max_age also removes pending ids of that age, unless a sketch counts them.
  // Returns ResourceExhausted if out of memory; nothing has changed then.
  Status Evict(const EvictionPolicy& policy, int64_t* evicted,
               const ParallelFor* parallel);
  // Evicts by the table's own policy.
  Status Evict(int64_t* evicted, const ParallelFor* parallel) {
    return Evict(table_.policies.eviction, evicted, parallel);
  }

  // Moves rows into the places of removed ones and returns free memory to the
  // system. *returned: by how many bytes Stats decreases. Nothing else changes.
  // Locks one shard at a time, for no longer than a few thousand rows or one
  // leaf of the index take. Returns ResourceExhausted if there is no memory for
  // a smaller leaf; rows moved until then stay moved.
  Status Compact(int64_t* returned);

  int64_t size() const { return table_.rows.size(); }
  // Missing ids have frequency 0.
  void Frequency(Span<const int64_t> ids, Span<int64_t> frequencies,
                 const ParallelFor* parallel) const;
  int64_t step() const { return table_.step.value(); }
  // Sets the step. From now on only SetStep moves it.
  void SetStep(int64_t step) { table_.step.Set(step, /*own=*/true); }
  // Lets Apply move the step again.
  void ReleaseStep() { table_.step.Release(); }
  // Makes MoveStep do nothing.
  static constexpr int64_t kSameStep = -2;
  // After an update: moves the step to `next_step`, but by at least one. Does
  // nothing if the step is set by SetStep.
  void MoveStep(int64_t next_step);
  // Moves the steps of several tables atomically with respect to other calls of
  // this function.
  struct NextStep {
    EmbeddingStore* store;
    int64_t step;
  };
  static void MoveSteps(Span<const NextStep> steps);
  // Counts a batch of `ids` ids, `padding` of them padding, with `unique`
  // unique ids.
  void CountBatch(int64_t ids, int64_t unique, int64_t padding) {
    table_.events.Add(Event::kIds, ids);
    table_.events.Add(Event::kUniqueIds, unique);
    table_.events.Add(Event::kPadding, padding);
  }
  EmbeddingStats Stats() const;
  // Subtracts events that Stats has reported.
  void SubtractEvents(const EmbeddingStats& stats);
  // Returns ResourceExhausted if out of memory.
  Status Inspect(Span<const int64_t> ids, InspectedIds* out) const;
  // Multiplies frequencies by `rate`, rounding down. Frequencies of rows seen
  // in this step stay above 0. Returns InvalidArgument if rate is not in [0, 1]
  // and ResourceExhausted if out of memory; nothing has changed then.
  Status DecayFrequencies(double rate, const ParallelFor* parallel);

  // Without `with_values`, exports the ids only; use Find to read the rows
  // piecewise. Returns ResourceExhausted if out of memory.
  Status Export(bool with_slots, EmbeddingRows* out,
                const ParallelFor* parallel, bool with_values = true) const;
  // Adds rows or overwrites existing ones. Slots of overwritten rows are reset
  // if none are given. Pending ids, sketch and shared rows are checked but not
  // imported. Returns InvalidArgument for repeated ids, sizes that do not fit,
  // another type than the table's, pending ids or a sketch of another
  // admission, and another number of shared rows. Returns FailedPrecondition
  // for slots of another optimizer than the attached one, and for more rows
  // than the cap.
  Status Import(const EmbeddingRowsView& rows, const ParallelFor* parallel);
  // Creates a table to replace `like`, with its shards, policies, kind of
  // initializer and events. It holds exactly `rows`, and their counters if
  // given. Both tables exist until one is destroyed. Errors: see Import.
  static Status CreateFrom(const EmbeddingRowsView& rows,
                           const EmbeddingStore& like,
                           const ParallelFor* parallel,
                           std::unique_ptr<EmbeddingStore>* out);
  // Copies state that may have changed in `like` since CreateFrom: events, and
  // the step and shared rows unless `rows` contain them. Requires: this was
  // created by CreateFrom from the same arguments and is not shared yet.
  void CopyLiveState(const EmbeddingStore& like, const EmbeddingRowsView& rows);

  // Base snapshot of the next incremental one; empty: the next snapshot is a
  // full one.
  std::string base() const { return table_.rows.changes().base(); }
  // Declares that the table equals snapshot `base`, and marks changes from here
  // on. If memory for marks runs out, the next snapshot is a full one. Empty:
  // stops marking. Requires: no other call changes rows at the same time.
  void SetBase(const std::string& base);

  // For snapshots and restores.
  SnapshotSource snapshot_source() { return SnapshotSource(&table_); }
  RowChecks row_checks() const { return RowChecks(table_); }
  RowsApplier rows_applier(bool fresh = false) {
    return RowsApplier(&table_, fresh);
  }

 private:
  EmbeddingStore(int dim, int num_shards, const RowInitializer& initializer,
                 const TablePolicies& policies, RowType type)
      : table_(dim, num_shards, initializer, policies, type) {}

  void ReadMissing(int64_t id, const Missing& missing, void* row) const;

  // One table's part of a FindOrInsert call.
  struct TableCall;
  // Calls body(call, first, count) for ranges of the ids of all tables, in one
  // parallel loop, because each table may be too small for two threads.
  template <typename Body>
  static void ForEachRange(std::vector<TableCall>* calls, int64_t cost,
                           const ParallelFor* parallel, const Body& body);
  // Takes the locks of the calls that need some, and creates rows in all of the
  // tables or in none.
  static Status LockAndInsert(std::vector<TableCall>* calls,
                              const LookupOptions& options,
                              const ParallelFor* parallel);

  // Steps of Apply, for rows of T. UpdateRow requires the row lock.
  // gradient(first, count): the gradient's columns from `first` on.
  template <typename T, typename Gradient>
  void UpdateRow(RowStore* rows, uint32_t row, const Gradient& gradient,
                 const SparseOptimizer& optimizer);
  struct PreparedUpdate;
  // Updates ids [begin, end).
  template <typename T>
  void UpdateRows(const PreparedUpdate& update, int64_t begin, int64_t end);
  template <typename T>
  void UpdateShared(const SharedRows::Readers& readers,
                    const ComputeOf<T>* gradients,
                    const SparseOptimizer& optimizer);
  Status CheckUpdate(const TableUpdate& update,
                     AttachedOptimizer* attached) const;
  // Creates the slots and rows that an update needs, and notes the ids that
  // still have no row.
  Status PrepareApply(const AttachedOptimizer& attached,
                      const ParallelFor* parallel, PreparedUpdate* update);

  // The rows that `policy` selects, by shard. Requires all locks.
  using RowLists = std::vector<std::vector<uint32_t>>;
  Status FindVictims(const EvictionPolicy& policy, int64_t now,
                     RowLists* victims, const ParallelFor* parallel) const;
  bool FindOldest(int64_t max_age, int64_t now, RowLists* victims) const;

  std::vector<int64_t> OrderOfImport(const EmbeddingRowsView& rows) const;
  Status Merge(const EmbeddingRowsView& rows, const ParallelFor* parallel);

  TableParts table_;
  FoundRows found_;
  // Included in the versions that GatherForUpdate returns. It is different for
  // each table, so a version from a replaced table never matches a row here.
  const int64_t version_salt_ = NextVersionSalt();
  static int64_t NextVersionSalt();
  int64_t VersionOf(const RowStore& rows, uint32_t row) const {
    return rows.Version(row) ^ version_salt_;
  }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_H_
