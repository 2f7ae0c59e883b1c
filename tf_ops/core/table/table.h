// Table: an embedding table, in host memory (EmbeddingStore) or in the memory
// of one GPU (DeviceStore).

#ifndef LODESTAR_TF_OPS_CORE_TABLE_TABLE_H_
#define LODESTAR_TF_OPS_CORE_TABLE_TABLE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/stochastic_rounding.h"
#include "tf_ops/core/rows/table_policies.h"
#include "tf_ops/core/table/embedding_rows.h"
#include "tf_ops/core/table/lookup_plan.h"
#include "tf_ops/core/table/table_events.h"
#include "tf_ops/core/table/table_step.h"

namespace lodestar {

struct DeviceStream;  // tf_ops/core/device/device_memory.h

// Where a call works: on threads of the host, or on a stream of a GPU. Refers
// to its argument. Conversions are implicit, so that a caller passes either.
class Execution {
 public:
  Execution() = default;  // on the calling thread
  Execution(const ParallelFor* parallel) : parallel_(parallel) {}
  Execution(const DeviceStream& stream) : stream_(&stream) {}

  const ParallelFor* parallel() const { return parallel_; }
  // Requires: made from a stream.
  const DeviceStream& stream() const { return *stream_; }
  bool on_gpu() const { return stream_ != nullptr; }

 private:
  const ParallelFor* parallel_ = nullptr;
  const DeviceStream* stream_ = nullptr;
};

// What a missing id reads.
struct Missing {
  // kShared: the id's shared row, or zeros in a table without shared rows.
  enum class Kind { kZeros, kInitial, kVector, kShared };
  Kind kind = Kind::kZeros;
  const void* vector = nullptr;  // kVector: D values of the table's type
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
  Numbers slots;   // [S, N, slot_width]
  int64_t slot_width = 0;
  std::vector<std::string> slot_names;
  std::vector<int64_t> frequencies;  // occurrences, also of pending ids
  std::vector<int64_t> last_seen;    // -1: unknown
  std::vector<int64_t> shards;
  std::vector<int64_t> states;
};

// What a training lookup does with its ids.
struct LookupOptions {
  // Which new ids get a row.
  enum class Admit {
    kByPolicy,
    kAll,   // immediately
    kNone,  // new ids are only counted
  };
  bool insert = false;  // create rows for missing ids
  bool count_frequency = false;
  Admit admit = Admit::kByPolicy;
};

// A training lookup of a batch. `missing` and all spans are in the table's
// memory.
struct TableLookup {
  Span<const int64_t> ids;              // [N]
  const int64_t* padding_id = nullptr;  // in host memory
  LookupOptions options;
  Missing missing;
  void* rows = nullptr;     // receives the rows, [N, D]
  Span<int64_t> positions;  // receives the index of each id among the unique
                            // ones, [N]; -1: padding
  // Returns memory for this many unique ids, and the plan to fill in. Called
  // once, before the table changes.
  std::function<Status(int64_t count, int64_t** unique_ids, LookupPlan** plan)>
      allocate;
};

// The same for unique ids.
struct UniqueLookup {
  Span<const int64_t> ids;    // [U]
  bool known_unique = false;  // not to be checked
  // How often each id occurs in its batch, in host memory; empty: once.
  Span<const uint32_t> occurrences;
  LookupOptions options;
  Missing missing;
  void* rows = nullptr;      // receives the rows, [U, D]
  bool* resident = nullptr;  // receives whether each id had a row before
};

class SnapshotSource;
class Table;

// What an update does about gradients that contain NaN or infinity.
enum class Nonfinite {
  kPass,   // applies them
  kRaise,  // fails
  kSkip,   // skips the updates of their ids
};

// An update of rows by their gradients. Ids and gradients are in the table's
// memory.
struct TableUpdate {
  Table* table = nullptr;
  Span<const int64_t> ids;  // [N]
  // The plan of the lookup that found the ids. Not null: the ids are unique.
  const LookupPlan* plan = nullptr;
  const void* gradients = nullptr;  // [N, D] floats
  Nonfinite nonfinite = Nonfinite::kRaise;
  std::string optimizer;  // name of the rule
  Span<const float> hyperparameters;
  Span<const float> slot_inits;
  bool create_missing = false;
  int64_t next_step = 0;  // see Table::MoveSteps
};

// K rows on their way through an update computed outside of the table. All
// values are floats.
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

// Errors for the gradients of an id, and for their sum by shared row.
Status NonfiniteGradient(int64_t id);
Status NonfiniteSharedRow(int64_t row);
// Returns InvalidArgument if rows of `type` cannot be sums of gradients.
Status CheckAccumulates(RowType type);
// The error for a sum of gradients that is too large for further additions.
Status SumOutOfRange(int64_t id);
// If all `times` x `count` terms are within this limit, their sum is within a
// quarter of the range, so it is finite without being computed.
inline float LimitOfTerms(int64_t count, int64_t times = 1) {
  return std::numeric_limits<float>::max() / 4 /
         static_cast<float>(std::max<int64_t>(count, 1)) /
         static_cast<float>(std::max<int64_t>(times, 1));
}
// Returns InvalidArgument if no shared row of `count` has number `id`, the i-th
// id of a call.
Status CheckSharedRowNumber(int64_t id, int64_t i, int64_t count);
// End of the errors about such gradients.
inline constexpr char kWhyNonfinite[] =
    ". The loss or a gradient was NaN or infinite. Look for NaN in labels, "
    "sample weights and other inputs, and for a learning rate that is too "
    "high. Pass nonfinite=\"skip\" to the optimizer to skip such rows.";

// Thread-safe. Pointers and spans are to the table's memory, except those of
// Inspect, Export and Import, which are to host memory. A table on a GPU queues
// its work on the stream and waits only for results in host memory; arguments
// must live until the queued work is done. A call that returns an error has
// changed nothing.
class Table {
 public:
  virtual ~Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  // Returns InvalidArgument if `dim` is not in [1, kMaxDim] or a parameter of a
  // policy is out of range.
  static Status CheckOptions(int64_t dim, const TablePolicies& policies);

  // Whether the rows are in the memory of a GPU.
  virtual bool on_gpu() const = 0;
  int dim() const { return dim_; }
  // Type of all values passed in and out.
  RowType type() const { return type_; }
  // Size of a row's values.
  int64_t row_bytes() const { return int64_t{dim_} * SizeOf(type_); }
  virtual const TablePolicies& policies() const = 0;
  const EvictionPolicy& eviction() const { return policies().eviction; }
  virtual const RowInitializer& initializer() const = 0;

  // How an update of step `now` rounds rows.
  StochasticRounding rounding(int64_t now, bool shared) const {
    if (!policies().stochastic_rounding) return {};
    return StochasticRounding::Of(initializer().value().key, now, shared);
  }

  int64_t step() const { return step_->value(); }
  // Sets the step. From now on only SetStep moves it. If `evicts`, then evicts
  // what the table's policy selects at this step. Fails only if CUDA fails.
  Status SetStep(int64_t step, const Execution& on = Execution(),
                 bool evicts = true);
  // Lets updates move the step again.
  void ReleaseStep() { step_->Release(); }
  // Makes MoveSteps do nothing.
  static constexpr int64_t kSameStep = -2;
  // After an update: moves the steps of several tables, atomically with respect
  // to other calls of this function, to `step`, but by at least one. Steps that
  // are set by SetStep stay. Then evicts what the policies of the tables select
  // at their new steps. Fails only if CUDA fails.
  struct NextStep {
    Table* table;
    int64_t step;
    TableStep::Move move = {};  // set by MoveSteps
  };
  static Status MoveSteps(Span<NextStep> steps, const Execution& on);
  Status MoveStep(int64_t next_step, const Execution& on) {
    NextStep next = {this, next_step};
    return MoveSteps({&next, 1}, on);
  }

  // Counts a batch of `ids` ids, `padding` of them padding, with `unique`
  // unique ids.
  void CountBatch(int64_t ids, int64_t unique, int64_t padding);
  void CountNonfiniteGradients(int64_t count) {
    events_->Add(Event::kNonfiniteGradients, count);
  }
  virtual Status ReadStats(EmbeddingStats* stats,
                           const Execution& on) const = 0;
  // Subtracts events that ReadStats has reported.
  void SubtractEvents(const EmbeddingStats& stats);

  virtual Status ReadSize(int64_t* rows, const Execution& on) const = 0;
  // Reads the rows of `ids` into `rows` ([N, D]; ids may repeat), and whether
  // each was found into `found` unless it is null. Ids equal to *padding_id, in
  // host memory, read zeros. If `counts`, counts the reads.
  virtual Status FindRows(Span<const int64_t> ids, const int64_t* padding_id,
                          const Missing& missing, void* rows, bool* found,
                          const Execution& on, bool counts = true) const = 0;
  // Looks up ids and creates rows for new ones, according to `options`. Counts
  // the batch, an occurrence of each unique id, and the events.
  virtual Status Lookup(const TableLookup& lookup, const Execution& on) = 0;
  // Returns InvalidArgument if an id is repeated.
  virtual Status LookupUnique(const UniqueLookup& lookup,
                              const Execution& on) = 0;
  // Updates rows of different tables of this kind, sums the gradients of equal
  // ids in their order, attaches each optimizer on its first call, and then
  // moves the steps of all tables as MoveSteps does. Ids without a row are
  // dropped and counted, or get a row first. Returns InvalidArgument for an
  // unknown optimizer, a wrong number of hyperparameters or `slot_inits`, and
  // non-finite gradients of kRaise, FailedPrecondition if another optimizer is
  // attached or new rows do not fit into a table that raises when full, and
  // ResourceExhausted if out of memory. After an error nothing has changed in
  // any table, and *failed is the index of the update that failed.
  virtual Status Update(Span<const TableUpdate> updates, const Execution& on,
                        int64_t* failed) = 0;
  // Returns the errors that Update would return for these gradients with
  // kRaise. If `additions` is positive, the rows are sums to which this many
  // such gradients are added, so the errors include sums out of range.
  virtual Status CheckUpdate(const TableUpdate& update,
                             const AttachedOptimizer& optimizer,
                             int64_t additions, const Execution& on) const = 0;
  // An update computed outside of the table (an unfused optimizer). Gathers the
  // rows of unique ids with their gradients [N, D]; AssignIfUnchanged writes
  // them back unless they were written in the meantime, and the caller repeats
  // with those. Uses the ids, gradients and `nonfinite` of the update. shared:
  // [N], whether the id is the number of a shared row, whose gradient is not
  // checked.
  //
  // Attaches the optimizer as Update does, and drops and counts gradients of
  // ids without a row. Sums gradients of ids that share a row. Calls
  // allocate(K, out) for K rows before anything is written. Waits for the
  // device. Returns InvalidArgument if the optimizer is not an unfused one or a
  // shared row does not exist; otherwise the errors of Update.
  using AllocateUpdate = std::function<Status(int64_t, RowsForUpdate*)>;
  virtual Status GatherForUpdate(const TableUpdate& update,
                                 Span<const bool> shared,
                                 const AttachedOptimizer& optimizer,
                                 const AllocateUpdate& allocate,
                                 const Execution& on) = 0;
  // Writes the rows that have not changed since. Sets changed[k] if row k had
  // changed and was not written. Then moves the step to `next_step` as
  // MoveSteps does.
  virtual Status AssignIfUnchanged(const UpdatedRows& rows,
                                   const AttachedOptimizer& optimizer,
                                   int64_t next_step, bool* changed,
                                   const Execution& on) = 0;
  // Assigns rows; the last of equal ids wins, and existing optimizer slots are
  // kept. New ids bypass admission but are refused if the table has no room
  // under its cap.
  virtual Status InsertOrAssign(Span<const int64_t> ids, const void* rows,
                                const Execution& on) = 0;
  // Returns the number of removed rows in *removed.
  virtual Status Remove(Span<const int64_t> ids, int64_t* removed,
                        const Execution& on) = 0;
  // Removes all rows, pending ids and the sketch, and resets shared rows. Step
  // and events stay. Waits for a running snapshot.
  virtual Status Clear(const Execution& on) = 0;
  // Removes the rows only, one by one while a snapshot runs.
  virtual Status RemoveAll(const Execution& on) = 0;
  // Evicts the rows that `policy` selects, except those seen in this step. A
  // max_age also removes pending ids of that age, unless a sketch counts them.
  //
  // Copies the ids and rows that go, in any order, into the host memory that
  // allocate(count, out) provides, which is called before anything is removed.
  // Copies nothing if `allocate` is empty.
  struct EvictedRows {
    int64_t* ids = nullptr;  // [count]
    char* rows = nullptr;    // [count, dim]
  };
  using AllocateEvicted = std::function<Status(int64_t count, EvictedRows*)>;
  virtual Status EvictRows(const EvictionPolicy& policy,
                           const AllocateEvicted& allocate, int64_t* evicted,
                           const Execution& on) = 0;
  Status Evict(const EvictionPolicy& policy, int64_t* evicted,
               const Execution& on) {
    return EvictRows(policy, nullptr, evicted, on);
  }
  // Evicts the rows that a part of the table's own policy selects, without
  // max_rows. If there is no memory for that, the next call evicts them. Fails
  // only if CUDA fails.
  virtual Status EvictDue(const EvictionPolicy& due, const Execution& on) = 0;
  // Returns free memory to the system. *returned: by how many bytes ReadStats
  // decreases.
  virtual Status Compact(int64_t* returned, const Execution& on) = 0;

  // Missing ids have frequency 0.
  virtual Status Frequency(Span<const int64_t> ids, Span<int64_t> frequencies,
                           const Execution& on) const = 0;
  // Multiplies frequencies by `rate`, rounding down. Frequencies of rows seen
  // in this step stay above 0. Returns InvalidArgument if rate is not in [0,
  // 1].
  virtual Status DecayFrequencies(double rate, const Execution& on) = 0;

  virtual Status Inspect(Span<const int64_t> ids, InspectedIds* out,
                         const Execution& on) const = 0;
  // Exports everything, or all but the slots.
  Status Export(bool with_slots, EmbeddingRows* out,
                const Execution& on) const {
    return ExportParts(with_slots ? Exported::kAll : Exported::kWithoutSlots,
                       out, on);
  }
  // Exports ids instead of rows; use FindRows to read the rows piecewise.
  Status ExportIds(EmbeddingRows* out, const Execution& on) const {
    return ExportParts(Exported::kIds, out, on);
  }
  // Exports everything but the rows.
  Status ExportState(EmbeddingRows* out, const Execution& on) const {
    return ExportParts(Exported::kState, out, on);
  }
  // Adds rows or overwrites existing ones. Slots of overwritten rows are reset
  // if none are given. Pending ids, sketch, shared rows and counters are
  // checked but not imported. Returns InvalidArgument for repeated ids, sizes
  // that do not fit, another type than the table's, pending ids or a sketch of
  // another admission, and another number of shared rows. Returns
  // FailedPrecondition for slots of another optimizer than the attached one,
  // and for more rows than the cap.
  virtual Status Import(const EmbeddingRowsView& rows, const Execution& on) = 0;
  // Creates a table to replace this one, with the same options and kind of
  // initializer. It holds exactly `rows`, and their counters if given. Both
  // tables exist until one is destroyed. Errors: see Import.
  virtual Status CreateReplacement(const EmbeddingRowsView& rows,
                                   const Execution& on,
                                   std::unique_ptr<Table>* out) const = 0;
  // Copies state that may have changed in `like` since it created this
  // replacement: events, and the step and shared rows unless this table has its
  // own. Call once. Requires: this is not shared yet; `like` is of this kind.
  struct OwnState {
    OwnState(const EmbeddingRowsView& rows)
        : step(rows.with_counters), shared_rows(!rows.shared_values.empty()) {}
    OwnState() = default;
    bool step = true;
    bool shared_rows = true;
  };
  virtual Status CopyLiveState(const Table& like, const OwnState& own,
                               const Execution& on) = 0;
  // Applies an incremental snapshot in one piece: removes the rows of `removed`
  // and imports `rows` with their counters. Sets *num_removed to the number of
  // removed rows. May fail after the removals. Returns Unimplemented for a
  // table in host memory, which reads the files itself (SnapshotDelta).
  virtual Status ImportDelta(Span<const int64_t> removed,
                             const EmbeddingRowsView& rows,
                             int64_t* num_removed, const Execution& on);

  // Returns FailedPrecondition if another optimizer is attached or the table
  // does not support this one.
  virtual Status CheckOptimizer(const AttachedOptimizer& optimizer) const = 0;
  // Returns true if RestartSlots would drop slots.
  virtual bool NeedsRestart(const AttachedOptimizer& optimizer,
                            KeptSlots keep) const = 0;
  // Attaches `optimizer` with fresh slots in place of the existing ones, unless
  // it keeps these. *former: the optimizer whose slots were dropped; empty if
  // nothing was dropped. *done is false, and nothing has changed, while a
  // snapshot is running. Requires: no step is inside the StepGate of the table.
  virtual Status RestartSlots(const AttachedOptimizer& optimizer,
                              KeptSlots keep, bool* done, std::string* former,
                              const Execution& on) = 0;
  // Makes what a snapshot of this table reads. The table must outlive it, and a
  // stream must outlive the beginning of the snapshot.
  virtual Status MakeSnapshotSource(const Execution& on,
                                    std::unique_ptr<SnapshotSource>* out) = 0;
  virtual void WaitForSnapshot() const = 0;
  // Base snapshot of the next incremental one; empty: the next snapshot is a
  // full one.
  virtual std::string base() const = 0;
  // Declares that the table equals snapshot `base`, and marks changes from here
  // on. If memory for marks runs out, the next snapshot is a full one. Empty:
  // stops marking. Requires: no other call changes rows at the same time.
  virtual void SetBase(const std::string& base, const Execution& on) = 0;

 protected:
  // The step and the events belong to the subclass and may be constructed
  // later.
  Table(int dim, RowType type, TableStep* step, TableEvents* events)
      : dim_(dim), type_(type), step_(step), events_(events) {}

  enum class Exported { kAll, kWithoutSlots, kIds, kState };
  virtual Status ExportParts(Exported what, EmbeddingRows* out,
                             const Execution& on) const = 0;

  // A number that identifies the rows of a table in this process, unlike an
  // address, which a later table may get. Evenly distributed, and not 0.
  static int64_t NextNumber();

 private:
  // Evicts what the table's policy selects after this move of its step.
  Status EvictAfter(const TableStep::Move& move, const Execution& on);

  const int dim_;
  const RowType type_;
  TableStep* const step_;
  TableEvents* const events_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_TABLE_TABLE_H_
