// EmbeddingStore: id -> row, growing by itself; made of parts (table_parts.h).
//
// Threads: every method may run at the same time as any other. Lookups and
// updates of resident rows take no lock of a shard, with one exception: where
// rows go in an order (a cap, an age), a lookup that counts sightings locks
// all shards once. With these locks it reads the step, makes rows, and puts the
// rows that it found at their new places in the order. What adds or removes
// rows plans without a lock, then locks the shards it touches (sharded_rows.h),
// reserves memory in all of them, and commits, which cannot fail: a call that
// returns an error has changed nothing.

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
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/embedding/shared_rows.h"
#include "tf_ops/core/embedding/sightings.h"
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
  std::array<int64_t, kNumEvents> events = {};
  int64_t count(Event event) const { return events[static_cast<int>(event)]; }
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

  int dim() const { return table_.rows.dim(); }
  bool counts_occurrences() const {
    return table_.policies.admission.count_occurrences;
  }
  // Of the numbers of every row that goes in or out.
  RowType type() const { return table_.rows.type(); }
  // Of a row's numbers.
  int64_t row_bytes() const { return table_.rows.row_bytes(); }

  // Rows of `ids` ([N, D], any ids, repeats allowed), and whether each was
  // found if `found` is not null. Ids equal to *padding_id read zeros. Returns
  // what a caller who serves gives to CountReads.
  ReadCounts Find(Span<const int64_t> ids, const int64_t* padding_id,
                  const Missing& missing, void* rows, bool* found,
                  const ParallelFor* parallel) const;
  void CountReads(const ReadCounts& reads) const {
    table_.events.AddReads(reads);
  }

  // Where the rows of ids are that have one.
  void FindAll(Span<const int64_t> ids, Span<RowRef> refs,
               const ParallelFor* parallel) const {
    table_.rows.FindAll(ids, refs, parallel);
  }

  using SightingOptions = lodestar::SightingOptions;
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

  // What a lookup has found, for the update that follows it.
  void KeepFound(FoundBatch batch) { found_.Keep(std::move(batch)); }
  FoundBatch TakeFound(Span<const int64_t> ids) { return found_.Take(ids); }

  // How the rows of a table's ids are updated.
  struct TableUpdate {
    EmbeddingStore* store = nullptr;
    Span<const int64_t> unique_ids;
    const void* gradients = nullptr;  // [U, D], of ComputeType(type())
    std::string name;                 // of the optimizer
    const SparseOptimizer* optimizer = nullptr;
    Span<const float> slot_inits;
    bool create_missing = false;
    int64_t next_step = 0;
    // Where the rows were at some time; empty: they are looked for.
    Span<const RowRef> refs;
  };
  // Updates rows of distinct ids with their gradients, attaching the optimizer
  // at its first call, then sets the steps of all tables, as MoveSteps does.
  // Ids without a row are dropped and counted, or made first. InvalidArgument:
  // no optimizer has this name, or `slot_inits` has not a number a slot.
  // FailedPrecondition: another optimizer is attached. ResourceExhausted: out
  // of memory. After an error no row has changed; *failed is the update that it
  // is of, if it is not null.
  static Status Apply(Span<const TableUpdate> updates,
                      const ParallelFor* parallel, int64_t* failed = nullptr);
  // The same of this table.
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
  // FailedPrecondition: another optimizer is attached.
  Status CheckOptimizer(const AttachedOptimizer& optimizer) const {
    return table_.optimizer.Check(optimizer);
  }

  // Whether RestartSlots would drop slots.
  bool NeedsRestart(const AttachedOptimizer& optimizer, KeptSlots keep) const {
    return table_.optimizer.bound() &&
           Restarts(table_.optimizer.optimizer(), optimizer, keep);
  }
  // Binds `optimizer` with fresh slots in place of those that the table has,
  // unless it keeps these. *former: whose slots were dropped; empty if there
  // were none, or no rows to have them. *done is false, and nothing has
  // changed, while a snapshot is running. ResourceExhausted: out of memory;
  // nothing has changed. REQUIRES: no step is inside StepGate.
  Status RestartSlots(const AttachedOptimizer& optimizer, KeptSlots keep,
                      bool* done, std::string* former);
  void WaitForSnapshot() const { table_.rows.changes().WaitForEnd(); }

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
  bool has_shared_rows() const { return table_.shared.any(); }
  // Of the ids without a row.
  SharedRows::Readers ReadersOfSharedRows(Span<const int64_t> ids) const;
  void CountNonfiniteGradients(int64_t count) {
    table_.events.Add(Event::kNonfiniteGradients, count);
  }

  // The last of equal ids wins; optimizer slots of existing rows are kept.
  // New ids ask no admission, but find room under the cap or are refused.
  Status InsertOrAssign(Span<const int64_t> ids, const void* rows,
                        const ParallelFor* parallel);
  // The number of rows removed.
  Status Remove(Span<const int64_t> ids, int64_t* removed);
  // Rows, pending ids and the sketch; shared rows begin anew, step and events
  // stay. Between two snapshots.
  Status Clear();
  // Rows only; where a snapshot runs, row by row beside it.
  Status RemoveAll();

  // Removes the rows that `policy` names, but none that was seen in this step;
  // a max_age forgets pending ids of that age, too, where no sketch counts
  // them. ResourceExhausted: out of memory; nothing changed.
  Status Evict(const EvictionPolicy& policy, int64_t* evicted,
               const ParallelFor* parallel);
  // The same by the table's own policy.
  Status Evict(int64_t* evicted, const ParallelFor* parallel) {
    return Evict(table_.policies.eviction, evicted, parallel);
  }

  // Moves rows into the places of removed ones and gives the memory that is
  // then free back to the system; *returned is by how many bytes that lowers
  // what Stats tells. Nothing else changes. It holds one shard at a time, and
  // for no longer than some thousand rows, or a leaf of the index, take.
  // ResourceExhausted: out of memory for a smaller leaf; what was moved by then
  // stays moved, which nothing shows but Stats.
  Status Compact(int64_t* returned);

  int64_t size() const { return table_.rows.size(); }
  // 0 for an id without a row.
  void Frequency(Span<const int64_t> ids, Span<int64_t> frequencies,
                 const ParallelFor* parallel) const;
  int64_t step() const { return table_.step.value(); }
  // From now on the step moves by this alone, not by Apply.
  void SetStep(int64_t step) { table_.step.Set(step, /*own=*/true); }
  // Apply moves the step again.
  void ReleaseStep() { table_.step.Release(); }
  // After an update: to `next_step`, but by one at least. Nothing if SetStep
  // drives it.
  static constexpr int64_t kSameStep = -2;
  void MoveStep(int64_t next_step);
  // The same of several tables, none of which has then the step of another
  // call, and some another's.
  struct NextStep {
    EmbeddingStore* store;
    int64_t step;
  };
  static void MoveSteps(Span<const NextStep> steps);
  // Counts a batch of `ids` ids, of which `padding` were padding, that had
  // `unique` distinct ones.
  void CountBatch(int64_t ids, int64_t unique, int64_t padding) {
    table_.events.Add(Event::kIds, ids);
    table_.events.Add(Event::kUniqueIds, unique);
    table_.events.Add(Event::kPadding, padding);
  }
  EmbeddingStats Stats() const;
  // Takes events off that Stats has told of.
  void SubtractEvents(const EmbeddingStats& stats);
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
  // Rows are added, or overwrite those of their ids, whose slots start anew if
  // none are given. Pending ids, sketch and shared rows are checked, not taken.
  // InvalidArgument: an id twice, sizes that do not fit, numbers of another
  // type than the table's, pending ids or a
  // sketch of another admission, another number of shared rows.
  // FailedPrecondition: slots of another optimizer than the attached one, or
  // more rows than the cap.
  Status Import(const EmbeddingRowsView& rows, const ParallelFor* parallel);
  // A table to take the place of `like`, with its shards, policies, kind of
  // initializer and events: it holds exactly `rows`, and their counters if they
  // are given. Until one of the two goes, both take their memory.
  // Errors: as Import.
  static Status CreateFrom(const EmbeddingRowsView& rows,
                           const EmbeddingStore& like,
                           const ParallelFor* parallel,
                           std::unique_ptr<EmbeddingStore>* out);
  // Its events are those that `like` has by now, and so are the step and the
  // values of shared rows where `rows` do not give them.
  // REQUIRES: CreateFrom made it of the two, and no one else has it yet.
  void TakeOver(const EmbeddingStore& like, const EmbeddingRowsView& rows);

  // The snapshot that the next delta follows; empty: the next one is whole.
  std::string base() const { return table_.rows.changes().base(); }
  // The table is as `base` says, and marks what changes from here on; without
  // memory for marks the next snapshot is whole. Empty: it marks nothing.
  // REQUIRES: no other call changes rows meanwhile.
  void SetBase(const std::string& base);

  // For who keeps the rules that the parts have.
  TableParts& parts() { return table_; }
  const TableParts& parts() const { return table_; }

 private:
  EmbeddingStore(int dim, int num_shards, const RowInitializer& initializer,
                 const TablePolicies& policies, RowType type)
      : table_(dim, num_shards, initializer, policies, type) {}

  void ReadMissing(int64_t id, const Missing& missing, void* row) const;

  // What one table does in a FindOrInsert.
  struct TableCall;
  // body(call, first, count) for ranges of the ids of all tables: one loop, for
  // each of them may be too small for two threads.
  template <typename Body>
  static void ForEachRange(std::vector<TableCall>* calls, int64_t cost,
                           const ParallelFor* parallel, const Body& body);
  // Takes the locks of the calls that have some. Rows are made in all of the
  // tables, or in none.
  static Status LockAndInsert(std::vector<TableCall>* calls,
                              const SightingOptions& options,
                              const ParallelFor* parallel);

  // The parts of Apply, for rows of T.
  // By who holds the row's word. gradient(first, count): its columns from
  // `first` on.
  template <typename T, typename Gradient>
  void UpdateRow(RowStore* rows, uint32_t row, const Gradient& gradient,
                 const SparseOptimizer& optimizer);
  struct PreparedUpdate;
  // Of its ids [begin, end).
  template <typename T>
  void UpdateRows(const PreparedUpdate& update, int64_t begin, int64_t end);
  template <typename T>
  void UpdateShared(const SharedRows::Readers& readers,
                    const ComputeOf<T>* gradients,
                    const SparseOptimizer& optimizer);
  Status CheckUpdate(const TableUpdate& update,
                     AttachedOptimizer* attached) const;
  // Makes the slots and rows that an update asks for, and notes which ids still
  // have none.
  Status PrepareApply(const AttachedOptimizer& attached,
                      const ParallelFor* parallel, PreparedUpdate* update);

  // Under all locks: the rows that `policy` names, by shard.
  using RowLists = std::vector<std::vector<uint32_t>>;
  Status FindVictims(const EvictionPolicy& policy, int64_t now,
                     RowLists* victims, const ParallelFor* parallel) const;
  bool FindOldest(int64_t max_age, int64_t now, RowLists* victims) const;

  Status CheckImport(const EmbeddingRowsView& rows) const;
  std::vector<int64_t> OrderOfImport(const EmbeddingRowsView& rows) const;
  Status Merge(const EmbeddingRowsView& rows, const ParallelFor* parallel);

  TableParts table_;
  FoundRows found_;
  // Part of the versions that GatherForUpdate gives out. Each table has another
  // one, so that no version of a table that was replaced fits a row here.
  const int64_t version_salt_ = NextVersionSalt();
  static int64_t NextVersionSalt();
  int64_t VersionOf(const RowStore& rows, uint32_t row) const {
    return rows.Version(row) ^ version_salt_;
  }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_H_
