// EmbeddingStore: an embedding table that grows on demand, made of the parts in
// table_parts.h. Thread-safe: any methods may run concurrently. Lookups and
// updates of resident rows take no shard lock, except that a table with a cap
// or an age limit locks all its shards once per counting lookup. Calls that add
// or remove rows plan, lock, reserve memory and then commit, which cannot fail:
// a call that returns an error has changed nothing. docs/internals/storage.md
// tells the whole story.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
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
#include "tf_ops/core/rows/stochastic_rounding.h"
#include "tf_ops/core/rows/table_policies.h"
#include "tf_ops/core/table/embedding_rows.h"
#include "tf_ops/core/table/lookup_plan.h"
#include "tf_ops/core/table/snapshot_source.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

class EmbeddingStore final : public Table {
 public:
  // Returns the errors of CheckOptions, and InvalidArgument if num_shards is
  // not in [1, 4096].
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

  bool on_gpu() const override { return false; }
  bool counts_occurrences() const {
    return table_.policies.admission.count_occurrences;
  }
  const TablePolicies& policies() const override { return table_.policies; }
  const RowInitializer& initializer() const override {
    return table_.initializer;
  }

  // As FindRows, but returns counts to be passed to CountReads, if the caller
  // counts reads.
  ReadCounts Find(Span<const int64_t> ids, const int64_t* padding_id,
                  const Missing& missing, void* rows, bool* found,
                  const ParallelFor* parallel) const;
  void CountReads(const ReadCounts& reads) const {
    table_.events.AddReads(reads);
  }
  Status FindRows(Span<const int64_t> ids, const int64_t* padding_id,
                  const Missing& missing, void* rows, bool* found,
                  const Execution& on, bool counts = true) const override {
    const ReadCounts reads =
        Find(ids, padding_id, missing, rows, found, on.parallel());
    if (counts) CountReads(reads);
    return Status();
  }

  Status Lookup(const TableLookup& lookup, const Execution& on) override;
  Status LookupUnique(const UniqueLookup& lookup, const Execution& on) override;

  // Finds the rows of those ids that have one.
  void FindAll(Span<const int64_t> ids, Span<RowRef> refs,
               const ParallelFor* parallel) const {
    table_.rows.FindAll(ids, refs, parallel);
  }

  using LookupOptions = lodestar::LookupOptions;
  // Unique ids of one table and what a lookup finds for them. A row is absent
  // if admission holds the id back or if it found no room under the cap.
  struct TableIds {
    EmbeddingStore* store = nullptr;
    Span<const int64_t> unique_ids;
    Span<RowRef> refs;
    // If not null: whether each id had a row before.
    char* resident = nullptr;
    // With counts_occurrences(): how often each id occurs in the batch.
    Span<const uint32_t> occurrences = {};
    // If not null, reads the row of each id, or what `missing` defines: [U, D],
    // or [N, D] for a batch whose id i is unique_ids[positions[i]], with zeros
    // for padding.
    void* rows = nullptr;
    Span<const int64_t> positions = {};
    Missing missing = {};
    int64_t num_rows() const {
      return positions.empty() ? unique_ids.size() : positions.size();
    }
  };
  // Creates rows in all of the tables or in none. Requires: the tables are
  // different. Returns ResourceExhausted if out of memory, and
  // FailedPrecondition if a table is full and raises; nothing has changed then.
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

  // A plan for rows of this store. Requires: as many refs as unique ids.
  LookupPlan PlanOf(std::vector<RowRef> refs) const {
    return {number_, std::move(refs)};
  }
  // The refs of a plan, or none if it was made by another store, such as the
  // one that an import has replaced.
  Span<const RowRef> RefsOf(const LookupPlan& plan) const {
    if (plan.store != number_) return {};
    return plan.refs;
  }

  Status Update(Span<const TableUpdate> updates, const Execution& on,
                int64_t* failed) override;
  Status CheckUpdate(const TableUpdate& update,
                     const AttachedOptimizer& optimizer, int64_t additions,
                     const Execution& on) const override;

  // An update of unique ids of one table.
  struct UniqueUpdate {
    EmbeddingStore* store = nullptr;
    Span<const int64_t> unique_ids;
    const void* gradients = nullptr;  // [U, D], floats
    std::string name;                 // name of the optimizer
    const SparseOptimizer* optimizer = nullptr;
    Span<const float> slot_inits;
    bool create_missing = false;
    int64_t next_step = 0;
    // Possible places of the rows; empty: search.
    Span<const RowRef> refs;
  };
  // Update, without its checks of gradients. `failed` may be null. Requires:
  // the tables are different.
  static Status Apply(Span<const UniqueUpdate> updates,
                      const ParallelFor* parallel, int64_t* failed = nullptr);
  // Updates this table only.
  Status Apply(Span<const int64_t> unique_ids, const void* gradients,
               const std::string& name, const SparseOptimizer& optimizer,
               Span<const float> slot_inits, bool create_missing,
               int64_t next_step, const ParallelFor* parallel,
               Span<const RowRef> refs = {}) {
    const UniqueUpdate update = {this,           unique_ids, gradients,
                                 name,           &optimizer, slot_inits,
                                 create_missing, next_step,  refs};
    return Apply(Span<const UniqueUpdate>(&update, 1), parallel);
  }
  Status CheckOptimizer(const AttachedOptimizer& optimizer) const override {
    return table_.optimizer.Check(optimizer);
  }

  bool NeedsRestart(const AttachedOptimizer& optimizer,
                    KeptSlots keep) const override {
    return table_.optimizer.bound() &&
           Restarts(table_.optimizer.optimizer(), optimizer, keep);
  }
  Status RestartSlots(const AttachedOptimizer& optimizer, KeptSlots keep,
                      bool* done, std::string* former,
                      const Execution& on) override;
  void WaitForSnapshot() const override { table_.rows.changes().WaitForEnd(); }

  Status GatherForUpdate(const TableUpdate& update, Span<const bool> shared,
                         const AttachedOptimizer& optimizer,
                         const AllocateUpdate& allocate,
                         const Execution& on) override;
  Status AssignIfUnchanged(const UpdatedRows& rows,
                           const AttachedOptimizer& optimizer,
                           int64_t next_step, bool* changed,
                           const Execution& on) override;
  bool has_shared_rows() const { return table_.shared.any(); }
  // Readers among the ids that have no row.
  SharedRows::Readers ReadersOfSharedRows(Span<const int64_t> ids) const;

  Status InsertOrAssign(Span<const int64_t> ids, const void* rows,
                        const Execution& on) override;
  Status Remove(Span<const int64_t> ids, int64_t* removed,
                const Execution& on) override;
  Status Clear(const Execution& on) override;
  Status RemoveAll(const Execution& on) override;

  Status EvictRows(const EvictionPolicy& policy,
                   const AllocateEvicted& allocate, int64_t* evicted,
                   const Execution& on) override;
  // Cannot fail.
  Status EvictDue(const EvictionPolicy& due, const Execution& on) override;
  // Moves rows into the places of removed ones. Locks one shard at a time, for
  // no longer than a few thousand rows or one leaf of the index take. Returns
  // ResourceExhausted if there is no memory for a smaller leaf; rows moved
  // until then stay moved.
  Status Compact(int64_t* returned, const Execution& on) override;

  int64_t size() const { return table_.rows.size(); }
  Status ReadSize(int64_t* rows, const Execution&) const override {
    *rows = size();
    return Status();
  }
  Status Frequency(Span<const int64_t> ids, Span<int64_t> frequencies,
                   const Execution& on) const override;
  EmbeddingStats Stats() const;
  Status ReadStats(EmbeddingStats* stats, const Execution&) const override {
    *stats = Stats();
    return Status();
  }
  Status Inspect(Span<const int64_t> ids, InspectedIds* out,
                 const Execution& on) const override;
  Status DecayFrequencies(double rate, const Execution& on) override;

  Status Import(const EmbeddingRowsView& rows, const Execution& on) override;
  // Replaces `like`. See CreateReplacement.
  static Status CreateFrom(const EmbeddingRowsView& rows,
                           const EmbeddingStore& like, const Execution& on,
                           std::unique_ptr<EmbeddingStore>* out);
  Status CreateReplacement(const EmbeddingRowsView& rows, const Execution& on,
                           std::unique_ptr<Table>* out) const override;
  Status CopyLiveState(const Table& like, const OwnState& own,
                       const Execution& on) override;

  std::string base() const override { return table_.rows.changes().base(); }
  void SetBase(const std::string& base, const Execution& on) override;

  // For snapshots and restores.
  Status MakeSnapshotSource(const Execution&,
                            std::unique_ptr<SnapshotSource>* out) override {
    *out = lodestar::MakeSnapshotSource(&table_);
    return Status();
  }
  RowChecks row_checks() const { return RowChecks(table_); }
  RowsApplier rows_applier(bool fresh = false) {
    return RowsApplier(&table_, fresh);
  }

 private:
  EmbeddingStore(int dim, int num_shards, const RowInitializer& initializer,
                 const TablePolicies& policies, RowType type)
      : Table(dim, type, &table_.step, &table_.events),
        table_(dim, num_shards, initializer, policies, type) {}

  Status ExportParts(Exported what, EmbeddingRows* out,
                     const Execution& on) const override;

  void ReadMissing(int64_t id, const Missing& missing, void* row) const;
  // Reads rows [begin, end) of ids.rows.
  static void ReadRows(const TableIds& ids, int64_t begin, int64_t end);

  // One table's part of a FindOrInsert call.
  struct TableCall;
  // Calls body(call, begin, end) for ranges of size(call) numbers of all
  // tables, in one parallel loop, because each table may be too small for two
  // threads.
  template <typename Size, typename Body>
  static void ForEachRange(std::vector<TableCall>* calls, const Size& size,
                           int64_t cost, const ParallelFor* parallel,
                           const Body& body);
  // Takes the locks of the calls that need some, and creates rows in all of the
  // tables or in none.
  static Status LockAndInsert(std::vector<TableCall>* calls,
                              const LookupOptions& options,
                              const ParallelFor* parallel);

  // GatherForUpdate, without its checks of gradients.
  Status GatherRows(Span<const int64_t> ids, Span<const bool> shared,
                    const void* gradients, const AttachedOptimizer& optimizer,
                    const AllocateUpdate& allocate,
                    const ParallelFor* parallel);

  // Steps of Apply, for rows of T. UpdateRow requires the row lock.
  // gradient(first, count): the gradient's columns from `first` on.
  template <typename T, typename Gradient>
  void UpdateRow(RowStore* rows, uint32_t row, int64_t id,
                 const StochasticRounding& rounding, const Gradient& gradient,
                 const SparseOptimizer& optimizer);
  struct PreparedUpdate;
  // Updates ids [begin, end).
  template <typename T>
  void UpdateRows(const PreparedUpdate& update, int64_t begin, int64_t end);
  template <typename T>
  void UpdateShared(const SharedRows::Readers& readers, const float* gradients,
                    const SparseOptimizer& optimizer,
                    const StochasticRounding& rounding);
  Status CheckRule(const UniqueUpdate& update,
                   AttachedOptimizer* attached) const;
  // PlanApply makes the plan that creates the slots and rows that an update
  // needs, without locks. CommitApply commits the prepared plan and notes the
  // ids that still have no row.
  void PlanApply(const ParallelFor* parallel, PreparedUpdate* update);
  static void CommitApply(const ParallelFor* parallel, PreparedUpdate* update);

  // The rows that `policy` selects, by shard. Requires all locks.
  using RowLists = std::vector<std::vector<uint32_t>>;
  Status FindVictims(const EvictionPolicy& policy, int64_t now,
                     RowLists* victims, const ParallelFor* parallel) const;
  bool FindOldest(int64_t max_age, int64_t now, RowLists* victims) const;
  // Returns whether the row is selected by the limits of `policy` other than
  // max_rows. Requires the shard's mutex.
  bool IsSelected(const EvictionPolicy& policy, const RowStore& rows,
                  uint32_t row, int64_t id, int64_t now) const;

  std::vector<int64_t> OrderOfImport(const EmbeddingRowsView& rows) const;
  Status Merge(const EmbeddingRowsView& rows, const ParallelFor* parallel);

  TableParts table_;
  // Identifies this store in plans and in the versions that GatherForUpdate
  // returns.
  const int64_t number_ = NextNumber();
  int64_t VersionOf(const RowStore& rows, uint32_t row) const {
    return rows.Version(row) ^ number_;
  }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_H_
