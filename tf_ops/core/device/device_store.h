// DeviceStore: an embedding table in the memory of one GPU that grows on
// demand. DeviceIndex finds a row, DeviceRows stores it.
//
// Calls queue work on a stream and return; they wait for the device only where
// stated or when the table may have to grow. Pointers are to device memory
// unless stated otherwise, and arguments must live until the queued work is
// done.
//
// Thread-safe, on any stream of the device: work that changes the table runs
// alone, in the order of the calls (StreamOrder). A call that returns an error
// has queued nothing that changes the table, unless CUDA itself failed. Results
// equal EmbeddingStore's and have the same bits on every run.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_STORE_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_STORE_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/base/host_device.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_admission.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/slot_shape.h"
#include "tf_ops/core/rows/table_policies.h"
#include "tf_ops/core/table/embedding_rows.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/core/table/table_events.h"
#include "tf_ops/core/table/table_step.h"

namespace lodestar {

// Counts of events in device memory. Unsigned, so differences may wrap around.
struct DeviceEvents {
  unsigned long long counts[kNumEvents] = {};
  LODESTAR_HOST_DEVICE unsigned long long& operator[](Event event) {
    return counts[static_cast<int>(event)];
  }
};

// Counters that kernels maintain in device memory.
struct DeviceTableState {
  // Counters of the running call. All blocks add to these, so they are separate
  // from the counters that blocks read.
  uint32_t taken = 0;
  uint32_t apart[31] = {};
  uint32_t reused = 0;   // cells of removed ids that were reused
  uint32_t emptied = 0;  // cells that became empty
  uint32_t freed = 0;
  // Counters between calls.
  uint32_t rows = 0;        // live rows
  uint32_t high_water = 0;  // rows ever allocated
  uint32_t free_rows = 0;   // rows on the free stack
  uint32_t cells = 0;       // upper bound of cells that are not empty
  DeviceEvents events;
};

// Defined for device code only.
struct DeviceIndex;
struct DeviceRowMeta;
struct DeviceRows;
struct DeviceSegment;
struct FindCall;
struct IndexEntry;
struct InitialRow;
struct PoolCall;
struct SlotFill;

// Rows [size, dim] that were copied from tables on other devices.
struct FetchedDeviceRows {
  RowType type = RowType::kFloat32;
  int64_t dim = 0;
  const void* rows = nullptr;
  int64_t size = 0;
};

class DeviceStore final : public Table {
 public:
  struct Options {
    int64_t dim = 0;
    RowType type = RowType::kFloat32;
    RowInitializer initializer;
    TablePolicies policies;
    // Fraction of cells that may be in use before the index grows.
    double max_load = 0.85;
  };

  // Returns the errors of CheckOptions, InvalidArgument if max_load is not in
  // (0, 0.95], and ResourceExhausted if out of memory.
  static Status Create(const Options& options,
                       std::shared_ptr<DeviceAllocator> allocator,
                       const DeviceStream& on,
                       std::unique_ptr<DeviceStore>* out);
  ~DeviceStore() override;

  bool on_gpu() const override { return true; }
  const TablePolicies& policies() const override { return options_.policies; }
  const RowInitializer& initializer() const override {
    return options_.initializer;
  }

  bool counts_occurrences() const {
    return options_.policies.admission.count_occurrences;
  }

  using Ids = DeviceIds;

  Status FindRows(Span<const int64_t> ids, const int64_t* padding_id,
                  const Missing& missing, void* rows, bool* found,
                  const Execution& on, bool counts = true) const override;

  Status Lookup(const TableLookup& lookup, const Execution& on) override;
  Status LookupUnique(const UniqueLookup& lookup, const Execution& on) override;

  struct InsertOptions {
    InsertOptions() = default;
    explicit InsertOptions(const LookupOptions& lookup,
                           const uint32_t* occurrences = nullptr)
        : insert(lookup.insert),
          admit(lookup.admit),
          count_frequency(lookup.count_frequency),
          occurrences(occurrences) {}
    bool insert = true;     // create rows for missing ids
    bool admission = true;  // these may need several occurrences
    LookupOptions::Admit admit = LookupOptions::Admit::kByPolicy;
    bool count_frequency = false;
    bool count_resident = true;  // also of ids that have a row
    // [N], how often each id occurs; null: count once per step.
    const uint32_t* occurrences = nullptr;
    bool count_events = true;
    // [N], ids to ignore; null: none.
    const bool* skipped = nullptr;
  };
  // Per-id results; null if not needed.
  struct Outputs {
    uint32_t* refs = nullptr;  // its row, or kNoRow
    bool* found = nullptr;     // whether it had a row before
    void* rows = nullptr;      // [N, dim]: its row, if it has one now
  };
  static constexpr uint32_t kNoRow = 0xffffffffu;
  // A call for one of several tables.
  struct TableInsert {
    DeviceStore* store = nullptr;
    Ids unique_ids;
    InsertOptions options;
    Outputs outputs;
  };
  // Finds or creates rows in all of the tables or in none. Requires: the tables
  // are different. Locks all of them. Tables with admission or a cap wait.
  static Status FindOrInsert(const DeviceStream& on,
                             Span<const TableInsert> tables)
      LODESTAR_NO_THREAD_SAFETY_ANALYSIS;
  Status FindOrInsert(const DeviceStream& on, const Ids& unique_ids,
                      const InsertOptions& options, const Outputs& outputs) {
    const TableInsert insert = {this, unique_ids, options, outputs};
    return FindOrInsert(on, {&insert, 1});
  }
  // Sets rows[i] to the row of ids[i] at refs[positions[i]], or at refs[i]
  // without positions, if it is still there. Position -1 reads zeros.
  Status ReadRows(const DeviceStream& on, const Ids& ids,
                  const int64_t* positions, const uint32_t* refs,
                  const Missing& missing, void* rows);

  // Bags of ids, pooled on the device; see Bags in embedding_pool.h.
  struct Bags {
    // [size + 1]. The first split is the index of the first id.
    const int64_t* row_splits = nullptr;
    int64_t size = 0;
    const float* weights = nullptr;  // null: all 1
    Combiner combiner = Combiner::kSum;
    const int64_t* padding_id = nullptr;  // in host memory
    const int64_t* default_id = nullptr;  // in host memory
    // Rows found by FindOrInsert, as in ReadRows. Without refs the ids are
    // searched and count as reads.
    const int64_t* positions = nullptr;
    const uint32_t* refs = nullptr;
    // Row of default_id, for fetched rows.
    const void* default_row = nullptr;
    uint64_t* sources = nullptr;  // scratch of [N]; null: allocated by Pool
  };
  // pooled: [B, D]. winners: for max only, else null; [B, D], the index in ids
  // of the largest element, or -1 for none. Splits are clamped to the batch.
  Status Pool(const DeviceStream& on, const Ids& ids, const Bags& bags,
              const Missing& missing, void* pooled, int64_t* winners = nullptr);
  // The same for fetched rows: ids[i] has row positions[i], which must not be
  // null; positions outside of [0, size) are padding.
  static Status ReadRows(const DeviceStream& on, const FetchedDeviceRows& from,
                         const Ids& ids, const int64_t* positions, void* rows);
  static Status Pool(const DeviceStream& on, const FetchedDeviceRows& from,
                     const Ids& ids, const Bags& bags, void* pooled,
                     int64_t* winners = nullptr);

  Status Update(Span<const TableUpdate> updates, const Execution& on,
                int64_t* failed) override LODESTAR_NO_THREAD_SAFETY_ANALYSIS;
  Status CheckUpdate(const TableUpdate& update,
                     const AttachedOptimizer& optimizer, int64_t additions,
                     const Execution& on) const override;

  Status GatherForUpdate(const TableUpdate& update, Span<const bool> shared,
                         const AttachedOptimizer& optimizer,
                         const AllocateUpdate& allocate,
                         const Execution& on) override;
  // Shared rows that do not exist count as changed.
  Status AssignIfUnchanged(const UpdatedRows& rows,
                           const AttachedOptimizer& optimizer,
                           int64_t next_step, bool* changed,
                           const Execution& on) override;

  Status InsertOrAssign(Span<const int64_t> ids, const void* rows,
                        const Execution& on) override;
  Status Remove(Span<const int64_t> ids, int64_t* removed,
                const Execution& on) override;
  Status Clear(const Execution& on) override;
  Status RemoveAll(const Execution& on) override;
  Status EvictRows(const EvictionPolicy& policy,
                   const AllocateEvicted& allocate, int64_t* evicted,
                   const Execution& on) override;
  Status EvictDue(const EvictionPolicy& due, const Execution& on) override;
  // Does nothing: free memory is kept for new rows.
  Status Compact(int64_t* returned, const Execution&) override {
    *returned = 0;
    return Status();
  }

  Status Frequency(Span<const int64_t> ids, Span<int64_t> frequencies,
                   const Execution& on) const override;
  Status DecayFrequencies(double rate, const Execution& on) override;
  Status Inspect(Span<const int64_t> ids, InspectedIds* out,
                 const Execution& on) const override;

  Status Import(const EmbeddingRowsView& rows, const Execution& on) override;
  Status CreateReplacement(const EmbeddingRowsView& rows, const Execution& on,
                           std::unique_ptr<Table>* out) const override;
  Status CopyLiveState(const Table& like, const OwnState& own,
                       const Execution& on) override;
  Status ImportDelta(Span<const int64_t> removed, const EmbeddingRowsView& rows,
                     int64_t* num_removed, const Execution& on) override;

  // Allocates room for `rows` rows in total and at least `cells` cells of the
  // index, a power of two. Waits. Returns ResourceExhausted if out of memory;
  // the table is unchanged then.
  Status Reserve(const DeviceStream& on, int64_t rows, int64_t cells = 0);
  // Waits.
  Status ReadState(const DeviceStream& on, DeviceTableState* state) const;
  Status ReadSize(int64_t* rows, const Execution& on) const override;
  Status ReadStats(EmbeddingStats* stats, const Execution& on) const override;

  Status CheckOptimizer(const AttachedOptimizer& optimizer) const override;
  bool NeedsRestart(const AttachedOptimizer& optimizer,
                    KeptSlots keep) const override;
  Status RestartSlots(const AttachedOptimizer& optimizer, KeptSlots keep,
                      bool* done, std::string* former,
                      const Execution& on) override;

  Status MakeSnapshotSource(const Execution& on,
                            std::unique_ptr<SnapshotSource>* out) override;
  void WaitForSnapshot() const override;
  std::string base() const override;
  void SetBase(const std::string& base, const Execution& on) override;

 private:
  DeviceStore(const Options& options,
              std::shared_ptr<DeviceAllocator> allocator)
      : Table(static_cast<int>(options.dim), options.type, &step_, &events_),
        options_(options),
        allocator_(std::move(allocator)),
        admission_(options.policies.admission, allocator_.get()) {}

  Status ExportParts(Exported what, EmbeddingRows* out,
                     const Execution& on) const override;

  struct Segment {
    DeviceArray<char> values;
    DeviceArray<char> slots;
    DeviceArray<DeviceRowMeta> meta;
    DeviceArray<uint32_t> free;
    DeviceArray<uint32_t> marks;  // empty until a snapshot begins
  };
  // What changed since the base snapshot, and the images of the running one.
  struct Changes;
  friend class DeviceSnapshot;

  // Ids without a row, whose gradients train shared rows, by shared row.
  struct SharedReaders {
    DeviceArray<uint32_t> keys;   // [U], their shared rows, then kNoRow
    DeviceArray<uint32_t> order;  // [U], their indices, ascending per row
    // Set by the update: whether each id still has no row, the sums of their
    // gradients at the place of the first reader of a row, and these places.
    DeviceArray<bool> reads;   // [U]
    DeviceArray<char> sums;    // [U, D] floats
    DeviceArray<bool> trains;  // [U]
  };
  class CheckedGradients;

  // An update of unique ids.
  struct UniqueUpdate {
    Ids ids;
    const void* sums = nullptr;     // [U, D] floats
    const bool* skipped = nullptr;  // [U], ids not to update; null: none
    const SharedReaders* readers = nullptr;  // null: no shared rows
  };
  // Sets keys and order of *readers. shared: [U], ids that are numbers of
  // shared rows themselves; null: none. skipped: [U], ids to ignore; null:
  // none. Requires a turn.
  Status ListReaders(const DeviceStream& on, const Ids& unique_ids,
                     const bool* shared, const bool* skipped,
                     SharedReaders* readers) const LODESTAR_REQUIRES(mutex_);
  // Also allocates the rest of *readers.
  Status FindReaders(const DeviceStream& on, const Ids& unique_ids,
                     const bool* shared, SharedReaders* readers) const;
  // AssignIfUnchanged, without moving the step.
  Status AssignRows(const DeviceStream& on, const UpdatedRows& updated,
                    const AttachedOptimizer& optimizer, bool* changed);
  // Locks several tables, in an order that is the same for all callers, for
  // work that writes to them. Requires: the tables are different.
  class WriteTurns {
   public:
    Status Begin(const DeviceStream& on, std::vector<DeviceStore*> stores)
        LODESTAR_NO_THREAD_SAFETY_ANALYSIS;
    Status End();

   private:
    std::deque<std::unique_lock<Mutex>> locks_;
    std::deque<StreamTurn> turns_;
  };
  // The two phases of Update for one of its tables. PlanUpdate makes all checks
  // and allocations (slots and rows), CommitUpdate writes. Require WriteTurns.
  struct PlannedUpdate;
  Status PlanUpdate(const DeviceStream& on, const TableUpdate& update,
                    const UniqueUpdate& unique, PlannedUpdate* plan)
      LODESTAR_REQUIRES(mutex_);
  Status CommitUpdate(const DeviceStream& on, const TableUpdate& update,
                      const UniqueUpdate& unique, PlannedUpdate* plan)
      LODESTAR_REQUIRES(mutex_);
  Status UpdateRows(const DeviceStream& on, const TableUpdate& update,
                    const UniqueUpdate& unique) LODESTAR_REQUIRES(mutex_);
  // Sums the gradients of each shared row.
  Status SumReaders(const DeviceStream& on, const UniqueUpdate& unique)
      LODESTAR_REQUIRES(mutex_);

  int64_t num_shared() const { return options_.policies.shared_rows; }

  Status CreateChanges();

  // The methods below require the mutex, and BeginWrite unless they only read.

  bool snapshot_runs() const LODESTAR_REQUIRES(mutex_);
  bool marking() const LODESTAR_REQUIRES(mutex_);
  // Releases the mutex while a snapshot is running. Does not require a turn.
  void WaitForEndOfSnapshot() LODESTAR_REQUIRES(mutex_);
  // Call if changes are not marked.
  void ForgetBase() LODESTAR_REQUIRES(mutex_);
  // Allocates cleared marks for a segment, if rows have marks.
  Status AllocateMarks(const DeviceStream& on, int64_t rows, Segment* segment)
      LODESTAR_REQUIRES(mutex_);
  Status StartMarking(const DeviceStream& on) LODESTAR_REQUIRES(mutex_);
  // Marks the rows of these ids as changed, and keeps images of those that the
  // running snapshot still needs. Call before they change or are removed.
  // counted: only their occurrences are counted, once in this step, so those
  // already counted in it do not change.
  Status BeforeWrite(const DeviceStream& on, const Ids& ids,
                     std::optional<int64_t> counted = std::nullopt)
      LODESTAR_REQUIRES(mutex_);
  // Changes the versions of the rows of these ids, if rows have versions.
  Status ChangeVersions(const DeviceStream& on, const Ids& ids)
      LODESTAR_REQUIRES(mutex_);
  // Copies the images in device memory to the host.
  Status DrainImages(const DeviceStream& on) LODESTAR_REQUIRES(mutex_);
  // Notes ids that were just removed. Call before rows are counted. An empty
  // array: removals are not noted.
  Status NoteRemoved(const DeviceStream& on, const DeviceArray<int64_t>& ids)
      LODESTAR_REQUIRES(mutex_);

  int64_t capacity() const LODESTAR_REQUIRES(mutex_);
  // Number of cells that may be in use before the index grows, and number of
  // cells for this many rows.
  int64_t MostCells() const LODESTAR_REQUIRES(mutex_);
  int64_t CellsFor(int64_t rows) const;
  DeviceIndex index() const LODESTAR_REQUIRES(mutex_);
  DeviceRows rows() const LODESTAR_REQUIRES(mutex_);
  // The layout of rows with the slots of this optimizer.
  DeviceRows RowsWith(const AttachedOptimizer& optimizer) const
      LODESTAR_REQUIRES(mutex_);
  DeviceRows shared_rows() const LODESTAR_REQUIRES(mutex_);
  // Resets the shared rows to their initial values.
  Status FillShared(const DeviceStream& on) LODESTAR_REQUIRES(mutex_);
  InitialRow initial() const;
  SlotFill slot_fill() const LODESTAR_REQUIRES(mutex_);
  FindCall find_call(const Ids& ids, const int64_t* padding_id,
                     const Missing& missing) const LODESTAR_REQUIRES(mutex_);
  Status Init(const DeviceStream& on);
  Status Fetch(const DeviceStream& on) const LODESTAR_REQUIRES(mutex_);
  Status CountMissing(const DeviceStream& on, const Ids& ids,
                      int64_t* missing) const LODESTAR_REQUIRES(mutex_);
  bool HasRoomFor(int64_t more) const LODESTAR_REQUIRES(mutex_);
  // Allocate room for `more` rows, and for the new ones among the ids.
  Status ReserveRows(const DeviceStream& on, int64_t more)
      LODESTAR_REQUIRES(mutex_);
  Status ReserveMore(const DeviceStream& on, const Ids& ids)
      LODESTAR_REQUIRES(mutex_);
  Status Grow(const DeviceStream& on, int64_t rows, int64_t cells)
      LODESTAR_REQUIRES(mutex_);
  // Makes room for the table's segments in their list on the device.
  Status ReserveSegments() LODESTAR_REQUIRES(mutex_);
  // Writes this list. Requires: ReserveSegments.
  Status UploadSegments(const DeviceStream& on) LODESTAR_REQUIRES(mutex_);
  Status Rehash(const DeviceStream& on, int64_t cells)
      LODESTAR_REQUIRES(mutex_);
  // An optimizer to attach, with memory for its slots.
  struct PlannedAttach {
    bool attaches = false;
    AttachedOptimizer optimizer;
    std::vector<DeviceArray<char>> slots;  // by segment
    DeviceArray<char> shared_slots;
  };
  // Attaching in two phases: PlanAttach checks and allocates, CommitAttach
  // writes. In between, the table must not grow.
  Status PlanAttach(AttachedOptimizer optimizer, PlannedAttach* plan) const
      LODESTAR_REQUIRES(mutex_);
  Status CommitAttach(const DeviceStream& on, PlannedAttach* plan)
      LODESTAR_REQUIRES(mutex_);
  Status AttachLocked(const DeviceStream& on, AttachedOptimizer optimizer)
      LODESTAR_REQUIRES(mutex_);
  // Values that rows get instead of initial values: row from[i] of `rows` for
  // ids[i], or row i without `from`.
  struct Assigned {
    const int64_t* from = nullptr;
    const void* rows = nullptr;
  };
  // Requires: ReserveMore if it inserts. Allocates nothing. Admits all ids.
  // now: the step, which a call reads once, because other calls may move it.
  // frequencies: [N], of new rows; null: this occurrence.
  Status InsertLocked(const DeviceStream& on, const Ids& unique_ids,
                      int64_t now, const InsertOptions& options,
                      const Assigned& assigned, const Outputs& outputs,
                      const uint32_t* frequencies = nullptr)
      LODESTAR_REQUIRES(mutex_);
  // Adds rows in two phases, like InsertPlan: PlanInsert makes all allocations,
  // CommitInsert writes. If the table has a cap, evicts rows to make room; ids
  // that still find no room get no row. PlanInsert of a table with admission or
  // a cap waits.
  struct PlannedInsert {
    Ids ids;
    InsertOptions options;
    int64_t now = 0;  // the step of the call
    // The rest is set for a table with admission, or whose cap may bind.
    bool by_id = false;
    DeviceArray<uint32_t> refs;  // [N]
    DeviceAdmission::Call call;
    DeviceAdmission::Plan admission;
    DeviceArray<int64_t> victims;  // ids of the rows to evict
    int64_t num_victims = 0;
    DeviceArray<int64_t> removed;          // see ReserveRemoval
    int64_t refused = 0;                   // admitted ids without room
    int64_t added = 0;                     // other admitted ids
    DeviceArray<int64_t> listed;           // [2, added]
    DeviceArray<uint32_t> listed_numbers;  // [2, added]
  };
  Status PlanInsert(const DeviceStream& on, const Ids& unique_ids,
                    const InsertOptions& options, PlannedInsert* plan)
      LODESTAR_REQUIRES(mutex_);
  Status CommitInsert(const DeviceStream& on, const PlannedInsert& plan,
                      const Assigned& assigned, const Outputs& outputs)
      LODESTAR_REQUIRES(mutex_);
  Status FindLocked(const DeviceStream& on, FindCall call, void* rows) const
      LODESTAR_REQUIRES(mutex_);
  Status ReadRowsLocked(const DeviceStream& on, const Ids& ids,
                        const int64_t* positions, const uint32_t* refs,
                        const Missing& missing, void* rows) const
      LODESTAR_REQUIRES(mutex_);
  // Finds the rows of bags and stores their places in *call.
  Status LocateLocked(const DeviceStream& on, const Ids& ids, const Bags& bags,
                      const Missing& missing, uint64_t* sources,
                      PoolCall* call) const LODESTAR_REQUIRES(mutex_);
  // Allocates what RemoveLocked needs to remove up to `count` rows. The table
  // must stay locked in between.
  Status ReserveRemoval(const DeviceStream& on, int64_t count,
                        DeviceArray<int64_t>* removed) const
      LODESTAR_REQUIRES(mutex_);
  Status RemoveLocked(const DeviceStream& on, const Ids& ids, bool evicted,
                      const DeviceArray<int64_t>& removed)
      LODESTAR_REQUIRES(mutex_);
  // Finds the rows that `policy` selects and, if these are fewer than `excess`,
  // further rows in eviction order up to `excess` in total. The first `count`
  // elements of *victims are their ids. Requires: Fetch was called.
  Status FindVictims(const DeviceStream& on, const EvictionPolicy& policy,
                     int64_t now, int64_t excess, DeviceArray<int64_t>* victims,
                     int64_t* count) LODESTAR_REQUIRES(mutex_);
  // Copies the ids and rows to the host. Waits.
  Status CopyVictims(const DeviceStream& on, const Ids& victims,
                     const AllocateEvicted& allocate) const
      LODESTAR_REQUIRES(mutex_);
  Status RemoveAllLocked(const DeviceStream& on) LODESTAR_REQUIRES(mutex_);
  // list: the rows; null: the first `count`, without metadata.
  Status Download(const DeviceStream& on, const DeviceRows& rows,
                  const uint32_t* list, int64_t count, const SlotShape& slots,
                  EmbeddingRows* out) const LODESTAR_REQUIRES(mutex_);
  // Require: CheckImportLocked succeeded.

  // counted: as inserts.
  Status ImportLocked(const DeviceStream& on, const EmbeddingRowsView& view,
                      bool counted) LODESTAR_REQUIRES(mutex_);
  // Imports what Import does not.
  Status ImportPolicies(const DeviceStream& on, const EmbeddingRowsView& view)
      LODESTAR_REQUIRES(mutex_);
  Status CheckImportLocked(const EmbeddingRowsView& view) const
      LODESTAR_REQUIRES(mutex_);
  Status CheckOptimizerLocked(const AttachedOptimizer& optimizer) const
      LODESTAR_REQUIRES(mutex_);

  const Options options_;
  const std::shared_ptr<DeviceAllocator> allocator_;
  TableStep step_;
  TableEvents events_;  // besides those in device memory

  mutable Mutex mutex_;
  mutable StreamOrder order_ LODESTAR_GUARDED_BY(mutex_);
  DeviceArray<uint32_t> tags_ LODESTAR_GUARDED_BY(mutex_);
  DeviceArray<IndexEntry> entries_ LODESTAR_GUARDED_BY(mutex_);
  std::vector<Segment> segments_ LODESTAR_GUARDED_BY(mutex_);
  DeviceArray<DeviceSegment> segment_table_ LODESTAR_GUARDED_BY(mutex_);
  DeviceArray<DeviceTableState> state_ LODESTAR_GUARDED_BY(mutex_);
  // Page-locked; the state last read by Fetch.
  DeviceTableState* fetched_ LODESTAR_PT_GUARDED_BY(mutex_) = nullptr;
  // Upper bound of the number of rows once all queued work is done.
  mutable int64_t rows_bound_ LODESTAR_GUARDED_BY(mutex_) = 0;
  mutable int64_t cells_bound_ LODESTAR_GUARDED_BY(mutex_) = 0;
  AttachedOptimizer optimizer_ LODESTAR_GUARDED_BY(mutex_);
  // Part of all versions that GatherForUpdate returns. Changes when all rows
  // are removed, all slots replaced, or shared rows imported.
  int64_t number_ LODESTAR_GUARDED_BY(mutex_) = NextNumber();
  DeviceAdmission admission_ LODESTAR_GUARDED_BY(mutex_);
  // What EvictDue had no memory to evict.
  EvictionPolicy postponed_ LODESTAR_GUARDED_BY(mutex_);
  // Shared rows, which form one segment; empty: none.
  DeviceArray<char> shared_values_ LODESTAR_GUARDED_BY(mutex_);
  DeviceArray<char> shared_slots_ LODESTAR_GUARDED_BY(mutex_);
  DeviceArray<DeviceSegment> shared_segment_ LODESTAR_GUARDED_BY(mutex_);
  std::shared_ptr<Changes> changes_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_STORE_H_
