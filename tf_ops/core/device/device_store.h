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
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/stream_order.h"
#include "tf_ops/core/embedding/embedding_rows.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

// What a missing id reads.
struct DeviceMissing {
  enum class Kind { kZeros, kInitial, kVector };
  Kind kind = Kind::kZeros;
  const void* vector = nullptr;  // kVector: dim values of the table's type
};

// Events as in EmbeddingStats. Unsigned, so differences may wrap around.
struct DeviceEvents {
  unsigned long long hits = 0;
  unsigned long long misses = 0;
  unsigned long long read_hits = 0;
  unsigned long long read_misses = 0;
  unsigned long long inserts = 0;
  unsigned long long admitted = 0;  // those of `inserts` that a lookup made
  unsigned long long removed = 0;
  unsigned long long evicted = 0;
  unsigned long long refused = 0;
  unsigned long long gradients_dropped = 0;

  // Adds sign * other.
  void Add(const DeviceEvents& other, unsigned long long sign) {
    hits += sign * other.hits;
    misses += sign * other.misses;
    read_hits += sign * other.read_hits;
    read_misses += sign * other.read_misses;
    inserts += sign * other.inserts;
    admitted += sign * other.admitted;
    removed += sign * other.removed;
    evicted += sign * other.evicted;
    refused += sign * other.refused;
    gradients_dropped += sign * other.gradients_dropped;
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

class DeviceStore {
 public:
  struct Options {
    int64_t dim = 0;
    RowType type = RowType::kFloat32;
    RowInitializer initializer;
    EvictionPolicy eviction;
    // Fraction of cells that may be in use before the index grows.
    double max_load = 0.85;
  };

  // `allocator` must outlive the store. Returns InvalidArgument if dim is not
  // in [1, 65536] or max_load is not in (0, 0.95], and ResourceExhausted if out
  // of memory.
  static Status Create(const Options& options, DeviceAllocator* allocator,
                       const DeviceStream& on,
                       std::unique_ptr<DeviceStore>* out);
  // Creates an empty table with the same options, initial values, step and load
  // factor.
  Status CreateEmptyLike(DeviceAllocator* allocator, const DeviceStream& on,
                         std::unique_ptr<DeviceStore>* out) const;
  ~DeviceStore();

  int dim() const { return static_cast<int>(options_.dim); }
  RowType type() const { return options_.type; }
  int64_t row_bytes() const { return options_.dim * SizeOf(options_.type); }
  DeviceAllocator* allocator() const { return allocator_; }
  const Options& options() const { return options_; }

  // A batch of ids. `count`, if not null, is the actual number of ids in device
  // memory, at most `size`.
  struct Ids {
    const int64_t* data = nullptr;
    int64_t size = 0;
    const int64_t* count = nullptr;
  };

  // Sets rows[i] to the row of ids[i] (ids may repeat), or to what `missing`
  // defines; *padding_id reads zeros. found: [N] or null.
  Status Find(const DeviceStream& on, const Ids& ids, const int64_t* padding_id,
              const DeviceMissing& missing, void* rows, bool* found);

  struct InsertOptions {
    bool insert = true;  // create rows for missing ids
    bool count_frequency = false;
    bool count_events = true;
    bool by_lookup = true;  // rows are created by a lookup
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
  // Allocates room for the new ones among the ids, so that a following
  // FindOrInsert does not fail for lack of memory.
  Status ReserveFor(const DeviceStream& on, const Ids& unique_ids);
  Status FindOrInsert(const DeviceStream& on, const Ids& unique_ids,
                      const InsertOptions& options, const Outputs& outputs);
  // Sets rows[i] to the row of ids[i] at refs[positions[i]], or at refs[i]
  // without positions, if it is still there. Position -1 reads zeros.
  Status ReadRows(const DeviceStream& on, const Ids& ids,
                  const int64_t* positions, const uint32_t* refs,
                  const DeviceMissing& missing, void* rows);

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
    uint64_t* sources = nullptr;  // scratch of [N]; null: allocated by Pool
  };
  // pooled: [B, D]. winners: for max only, else null; [B, D], the index in ids
  // of the largest element, or -1 for none. Splits are clamped to the batch.
  Status Pool(const DeviceStream& on, const Ids& ids, const Bags& bags,
              const DeviceMissing& missing, void* pooled,
              int64_t* winners = nullptr);
  // Computes weight_gradients [N] from gradients [B, D] of the table's type,
  // for sum, mean and sqrtn. Does not count reads.
  Status WeightGradients(const DeviceStream& on, const Ids& ids,
                         const Bags& bags, const DeviceMissing& missing,
                         const void* gradients, float* weight_gradients);

  // Updates rows of unique ids with gradients [U, D] of ComputeType(type()).
  // Otherwise like EmbeddingStore::Apply.
  struct Update {
    Ids unique_ids;
    const void* gradients = nullptr;
    std::string name;  // name of the optimizer
    Span<const float> hyperparameters;
    Span<const float> slot_inits;
    bool create_missing = false;
    int64_t next_step = 0;
    // [U], ids not to update; null: none.
    const bool* skipped = nullptr;
  };
  // The two parts of Apply: Prepare makes all checks and allocations (slots and
  // rows), then the rows are updated.
  Status Prepare(const DeviceStream& on, const Update& update);
  Status UpdateRows(const DeviceStream& on, const Update& update);
  Status Apply(const DeviceStream& on, const Update& update);

  // The last of equal ids wins. Slots of existing rows are kept.
  Status InsertOrAssign(const DeviceStream& on, const Ids& ids,
                        const void* rows);
  // Waits. Returns the number of removed rows in *removed.
  Status Remove(const DeviceStream& on, const Ids& ids, int64_t* removed);
  Status Clear(const DeviceStream& on);
  // Waits. See EmbeddingStore::Evict.
  Status Evict(const DeviceStream& on, const EvictionPolicy& policy,
               int64_t* evicted);

  // Sets frequencies[i] to the frequency of ids[i]; 0 without a row.
  Status Frequency(const DeviceStream& on, const Ids& ids,
                   int64_t* frequencies);
  // Multiplies frequencies by `rate`, rounding down. Frequencies of rows seen
  // in this step stay above 0. Returns InvalidArgument if rate is not in [0,
  // 1].
  Status DecayFrequencies(const DeviceStream& on, double rate);
  // Waits. Copies all data of the rows of `ids`, in their order, to host
  // memory. Missing ids have found[i] == false, zeros, and last_seen -1.
  Status Inspect(const DeviceStream& on, Span<const int64_t> ids,
                 EmbeddingRows* out, std::vector<char>* found);

  // Waits. Exports to host memory, by ascending id. Without `with_values`,
  // exports the ids only.
  Status Export(const DeviceStream& on, bool with_slots, EmbeddingRows* out,
                bool with_values = true);
  // Checks everything that Import checks, except memory and the cap.
  Status CheckImport(const EmbeddingRowsView& rows) const;
  // Waits. Imports from host memory; adds rows or overwrites existing ones.
  Status Import(const DeviceStream& on, const EmbeddingRowsView& rows);

  // Allocates room for `rows` rows in total and at least `cells` cells of the
  // index, a power of two. Waits. Returns ResourceExhausted if out of memory;
  // the table is unchanged then.
  Status Reserve(const DeviceStream& on, int64_t rows, int64_t cells = 0);
  // Waits.
  Status ReadState(const DeviceStream& on, DeviceTableState* state);

  struct Bytes {
    int64_t index = 0;
    int64_t rows = 0;
    int64_t slots = 0;
    int64_t capacity = 0;  // rows that fit without growth
  };
  Bytes bytes() const;
  // Returns FailedPrecondition if another optimizer is attached or it has no
  // fused rule.
  Status CheckOptimizer(const AttachedOptimizer& optimizer) const;
  // Attaches `optimizer` with fresh slots in place of the existing ones, unless
  // it keeps these. *former: the optimizer whose slots were dropped; empty if
  // nothing was dropped. Returns ResourceExhausted if out of memory; the slots
  // are unchanged then.
  Status RestartSlots(const DeviceStream& on,
                      const AttachedOptimizer& optimizer, KeptSlots keep,
                      std::string* former);

  int64_t step() const;
  void SetStep(int64_t step);
  void ReleaseStep();
  static constexpr int64_t kSameStep = -2;

 private:
  DeviceStore(const Options& options, DeviceAllocator* allocator)
      : options_(options),
        allocator_(allocator),
        initializer_(options.initializer) {}

  struct Segment {
    DeviceArray<char> values;
    DeviceArray<char> slots;
    DeviceArray<DeviceRowMeta> meta;
    DeviceArray<uint32_t> free;
  };

  // The methods below require the mutex, and BeginWrite unless they only read.

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
  InitialRow initial() const LODESTAR_REQUIRES(mutex_);
  SlotFill slot_fill() const LODESTAR_REQUIRES(mutex_);
  FindCall find_call(const Ids& ids, const int64_t* padding_id,
                     const DeviceMissing& missing) const
      LODESTAR_REQUIRES(mutex_);
  Status Init(const DeviceStream& on);
  Status Fetch(const DeviceStream& on) LODESTAR_REQUIRES(mutex_);
  Status CountMissing(const DeviceStream& on, const Ids& ids,
                      int64_t* missing) const LODESTAR_REQUIRES(mutex_);
  // Allocates room for the new ones among the ids.
  Status ReserveMore(const DeviceStream& on, const Ids& ids)
      LODESTAR_REQUIRES(mutex_);
  Status Grow(const DeviceStream& on, int64_t rows, int64_t cells)
      LODESTAR_REQUIRES(mutex_);
  Status UploadSegments(const DeviceStream& on) LODESTAR_REQUIRES(mutex_);
  Status Rehash(const DeviceStream& on, int64_t cells)
      LODESTAR_REQUIRES(mutex_);
  Status AttachLocked(const DeviceStream& on, AttachedOptimizer optimizer)
      LODESTAR_REQUIRES(mutex_);
  Status UpdateLocked(const DeviceStream& on, const Update& update)
      LODESTAR_REQUIRES(mutex_);
  // Values that rows get instead of initial values: row from[i] of `rows` for
  // ids[i], or row i without `from`.
  struct Assigned {
    const int64_t* from = nullptr;
    const void* rows = nullptr;
  };
  // Requires: ReserveMore if it inserts. Allocates nothing.
  Status InsertLocked(const DeviceStream& on, const Ids& unique_ids,
                      const InsertOptions& options, const Assigned& assigned,
                      const Outputs& outputs) LODESTAR_REQUIRES(mutex_);
  // Reserves memory and inserts. If the table has a cap, evicts rows to make
  // room; ids that still find no room get no row. A table with a cap waits.
  Status InsertUnderCap(const DeviceStream& on, const Ids& unique_ids,
                        const InsertOptions& options, const Assigned& assigned,
                        const Outputs& outputs) LODESTAR_REQUIRES(mutex_);
  Status FindLocked(const DeviceStream& on, FindCall call, void* rows) const
      LODESTAR_REQUIRES(mutex_);
  Status ReadRowsLocked(const DeviceStream& on, const Ids& ids,
                        const int64_t* positions, const uint32_t* refs,
                        const DeviceMissing& missing, void* rows) const
      LODESTAR_REQUIRES(mutex_);
  // Finds the rows of bags and stores their places in *call.
  Status LocateLocked(const DeviceStream& on, const Ids& ids, const Bags& bags,
                      const DeviceMissing& missing, bool counts,
                      uint64_t* sources, PoolCall* call) const
      LODESTAR_REQUIRES(mutex_);
  Status RemoveLocked(const DeviceStream& on, const Ids& ids, bool evicted)
      LODESTAR_REQUIRES(mutex_);
  // Evicts the rows that `policy` selects and, if these are fewer than
  // `excess`, further rows in eviction order up to `excess` in total. Requires:
  // Fetch was called.
  Status EvictLocked(const DeviceStream& on, const EvictionPolicy& policy,
                     int64_t excess, int64_t* evicted)
      LODESTAR_REQUIRES(mutex_);
  Status PrepareLocked(const DeviceStream& on, const Update& update)
      LODESTAR_REQUIRES(mutex_);
  Status Download(const DeviceStream& on, const uint32_t* list, int64_t count,
                  int num_slots, EmbeddingRows* out) const
      LODESTAR_REQUIRES(mutex_);
  Status CheckImportLocked(const EmbeddingRowsView& view) const
      LODESTAR_REQUIRES(mutex_);
  void MoveStepLocked(int64_t next_step) LODESTAR_REQUIRES(mutex_);
  Status CheckOptimizerLocked(const AttachedOptimizer& optimizer) const
      LODESTAR_REQUIRES(mutex_);

  const Options options_;
  DeviceAllocator* const allocator_;

  mutable Mutex mutex_;
  StreamOrder order_ LODESTAR_GUARDED_BY(mutex_);
  DeviceArray<uint32_t> tags_ LODESTAR_GUARDED_BY(mutex_);
  DeviceArray<IndexEntry> entries_ LODESTAR_GUARDED_BY(mutex_);
  std::vector<Segment> segments_ LODESTAR_GUARDED_BY(mutex_);
  DeviceArray<DeviceSegment> segment_table_ LODESTAR_GUARDED_BY(mutex_);
  DeviceArray<DeviceTableState> state_ LODESTAR_GUARDED_BY(mutex_);
  // Page-locked; the state last read by Fetch.
  DeviceTableState* fetched_ LODESTAR_PT_GUARDED_BY(mutex_) = nullptr;
  // Upper bound of the number of rows once all queued work is done.
  int64_t rows_bound_ LODESTAR_GUARDED_BY(mutex_) = 0;
  int64_t cells_bound_ LODESTAR_GUARDED_BY(mutex_) = 0;
  RowInitializer initializer_ LODESTAR_GUARDED_BY(mutex_);
  AttachedOptimizer optimizer_ LODESTAR_GUARDED_BY(mutex_);
  int64_t step_ LODESTAR_GUARDED_BY(mutex_) = 0;
  bool own_step_ LODESTAR_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_STORE_H_
