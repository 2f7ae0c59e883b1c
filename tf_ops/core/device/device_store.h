// DeviceStore: an embedding table in the memory of one GPU; id -> row, growing
// by itself. DeviceIndex says where a row is, DeviceRows holds it.
//
// Calls queue work on a stream and return; pointers are to device memory unless
// said otherwise, and what a call reads or writes has to live until its work is
// done. Calls wait for the device only where it is said, or where the table may
// have to grow.
//
// Any thread may call at any time, on any stream of the device: work that
// changes the table runs alone, in the order of the calls (StreamOrder). A call
// that returns an error has queued nothing that changes the table. An error of
// CUDA itself leaves it as CUDA left it.
//
// Results are those of EmbeddingStore, and the same on every run: no sum
// depends on who came first.

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
  const void* vector = nullptr;  // kVector: dim numbers of the table's type
};

// As EmbeddingStats tells them; differences wrap, so that they can be added to.
struct DeviceEvents {
  unsigned long long hits = 0;
  unsigned long long misses = 0;
  unsigned long long read_hits = 0;
  unsigned long long read_misses = 0;
  unsigned long long inserts = 0;
  unsigned long long admitted = 0;  // of these, by a lookup
  unsigned long long removed = 0;
  unsigned long long evicted = 0;
  unsigned long long refused = 0;
  unsigned long long gradients_dropped = 0;

  // this + sign * other.
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

// What the kernels keep count of, in device memory.
struct DeviceTableState {
  // Of the call that runs; what all blocks add to, apart from what they read.
  uint32_t taken = 0;
  uint32_t apart[31] = {};
  uint32_t reused = 0;   // cells of removed ids that it took
  uint32_t emptied = 0;  // cells that it made empty
  uint32_t freed = 0;
  // Between calls.
  uint32_t rows = 0;        // live ones
  uint32_t high_water = 0;  // rows that ever were
  uint32_t free_rows = 0;   // of these, on the stack
  uint32_t cells = 0;       // at most so many cells of the index are not empty
  DeviceEvents events;
};

// What only device code needs to know of.
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
    // Of the cells of the index, that may be in use before it grows.
    double max_load = 0.85;
  };

  // InvalidArgument: dim not in [1, 65536], max_load not in (0, 0.95].
  // ResourceExhausted: out of memory. `allocator` outlives the store.
  static Status Create(const Options& options, DeviceAllocator* allocator,
                       const DeviceStream& on,
                       std::unique_ptr<DeviceStore>* out);
  // An empty table of the same options, first values, step and load.
  Status CreateEmptyLike(DeviceAllocator* allocator, const DeviceStream& on,
                         std::unique_ptr<DeviceStore>* out) const;
  ~DeviceStore();

  int dim() const { return static_cast<int>(options_.dim); }
  RowType type() const { return options_.type; }
  int64_t row_bytes() const { return options_.dim * SizeOf(options_.type); }
  DeviceAllocator* allocator() const { return allocator_; }
  const Options& options() const { return options_; }

  // A batch of ids; `count`, if not null, is how many of them there are, in
  // device memory, at most size.
  struct Ids {
    const int64_t* data = nullptr;
    int64_t size = 0;
    const int64_t* count = nullptr;
  };

  // rows[i]: the row of ids[i], any ids, repeats allowed; what `missing` says
  // where it has none, zeros for *padding_id. found, if not null: [N].
  Status Find(const DeviceStream& on, const Ids& ids, const int64_t* padding_id,
              const DeviceMissing& missing, void* rows, bool* found);

  struct InsertOptions {
    bool insert = true;  // make rows of ids that have none
    bool count_sightings = false;
    bool count_events = true;
    bool sighted = true;  // it is a lookup that makes the rows
    // [N], of ids that are passed over; null: none.
    const bool* skipped = nullptr;
  };
  // What comes out for each of the ids; null: it is not wanted.
  struct Outputs {
    uint32_t* refs = nullptr;  // where its row is, kNoRow for none
    bool* found = nullptr;     // whether it had one before
    void* rows = nullptr;      // its row, where it has one now: [N, dim]
  };
  static constexpr uint32_t kNoRow = 0xffffffffu;
  // Room for those of the ids that are new, so that no FindOrInsert of them
  // that follows fails for want of it.
  Status ReserveFor(const DeviceStream& on, const Ids& distinct_ids);
  Status FindOrInsert(const DeviceStream& on, const Ids& distinct_ids,
                      const InsertOptions& options, const Outputs& outputs);
  // rows[i]: that of ids[i], which is refs[positions[i]], or without positions
  // refs[i], if it is still there; zeros where positions says -1.
  Status ReadRows(const DeviceStream& on, const Ids& ids,
                  const int64_t* positions, const uint32_t* refs,
                  const DeviceMissing& missing, void* rows);

  // Bags of ids, pooled where the rows lie; as Bags of embedding_pool.h.
  struct Bags {
    // [size + 1]: the first is where the ids begin.
    const int64_t* row_splits = nullptr;
    int64_t size = 0;
    const float* weights = nullptr;  // null: all 1
    Combiner combiner = Combiner::kSum;
    const int64_t* padding_id = nullptr;  // in host memory
    const int64_t* default_id = nullptr;  // likewise
    // Where FindOrInsert found the rows, as ReadRows takes them; without refs
    // they are searched, and count as reads.
    const int64_t* positions = nullptr;
    const uint32_t* refs = nullptr;
    uint64_t* sources = nullptr;  // room of [N]; null: Pool asks for it
  };
  // pooled: [B, D]. winners, for max only, else null: [B, D], the index in ids
  // of each largest number, -1 where there is none. Splits are read as the
  // nearest ones inside of the batch.
  Status Pool(const DeviceStream& on, const Ids& ids, const Bags& bags,
              const DeviceMissing& missing, void* pooled,
              int64_t* winners = nullptr);
  // gradients [B, D], of the table's type -> weight_gradients [N]; of sum, mean
  // and sqrtn. Counts no reads.
  Status WeightGradients(const DeviceStream& on, const Ids& ids,
                         const Bags& bags, const DeviceMissing& missing,
                         const void* gradients, float* weight_gradients);

  // Updates rows of distinct ids with gradients [U, D], of ComputeType(type()).
  // The rest as EmbeddingStore::Apply.
  struct Update {
    Ids distinct_ids;
    const void* gradients = nullptr;
    std::string name;  // of the optimizer
    Span<const float> hyperparameters;
    Span<const float> slot_inits;
    bool create_missing = false;
    int64_t next_step = 0;
    // [U], of ids that are to stay as they are; null: none.
    const bool* skipped = nullptr;
  };
  // The two parts of Apply: all that memory or a check may refuse, which is
  // slots and rows; then the update of what is there.
  Status Prepare(const DeviceStream& on, const Update& update);
  Status UpdateRows(const DeviceStream& on, const Update& update);
  Status Apply(const DeviceStream& on, const Update& update);

  // The last of equal ids wins; slots of existing rows are kept.
  Status InsertOrAssign(const DeviceStream& on, const Ids& ids,
                        const void* rows);
  // Waits. The number of rows removed.
  Status Remove(const DeviceStream& on, const Ids& ids, int64_t* removed);
  Status Clear(const DeviceStream& on);
  // Waits. As EmbeddingStore::Evict.
  Status Evict(const DeviceStream& on, const EvictionPolicy& policy,
               int64_t* evicted);

  // frequencies[i]: of the row of ids[i], 0 where it has none.
  Status Frequency(const DeviceStream& on, const Ids& ids,
                   int64_t* frequencies);
  // Multiplies frequencies with `rate`, rounding down; those of this step stay
  // above 0. InvalidArgument: rate not in [0, 1].
  Status DecayFrequencies(const DeviceStream& on, double rate);
  // Waits. Host memory: everything of the rows of `ids`, in their order; zeros,
  // and last seen at -1, where found[i] says that there is none.
  Status Inspect(const DeviceStream& on, Span<const int64_t> ids,
                 EmbeddingRows* out, std::vector<char>* found);

  // Waits. Host memory, ascending ids; without values nothing but these.
  Status Export(const DeviceStream& on, bool with_slots, EmbeddingRows* out,
                bool with_values = true);
  // Whether Import takes the rows, but for memory and the cap.
  Status CheckImport(const EmbeddingRowsView& rows) const;
  // Waits. Of host memory; rows are added, or overwrite those of their ids.
  Status Import(const DeviceStream& on, const EmbeddingRowsView& rows);

  // Room for so many rows in all, and at least so many cells in the index, a
  // power of two. ResourceExhausted: out of memory; the table is as it was.
  // Waits.
  Status Reserve(const DeviceStream& on, int64_t rows, int64_t cells = 0);
  // Waits.
  Status ReadState(const DeviceStream& on, DeviceTableState* state);

  struct Bytes {
    int64_t index = 0;
    int64_t rows = 0;
    int64_t slots = 0;
    int64_t capacity = 0;  // rows that fit
  };
  Bytes bytes() const;
  // FailedPrecondition: another optimizer is attached, or it has no rule of its
  // own.
  Status CheckOptimizer(const AttachedOptimizer& optimizer) const;
  // Attaches `optimizer` with fresh slots in place of those that the table has,
  // unless it keeps these. *former: whose slots were dropped; empty if there
  // were none, or no rows to have them. ResourceExhausted: out of memory; the
  // slots stay as they are.
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

  // All of these with the mutex, inside BeginWrite unless they only read.

  int64_t capacity() const LODESTAR_REQUIRES(mutex_);
  // Cells that may be in use before the index grows, and that it has for so
  // many rows.
  int64_t MostCells() const LODESTAR_REQUIRES(mutex_);
  int64_t CellsFor(int64_t rows) const;
  DeviceIndex index() const LODESTAR_REQUIRES(mutex_);
  DeviceRows rows() const LODESTAR_REQUIRES(mutex_);
  // The layout of rows that have the slots of this optimizer.
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
  // Room for those of the ids that are new.
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
  // What rows get in place of their first values: number from[i] of `rows` for
  // ids[i]; without `from`, number i.
  struct Assigned {
    const int64_t* from = nullptr;
    const void* rows = nullptr;
  };
  // REQUIRES: ReserveMore, where it inserts. Asks for no memory.
  Status InsertLocked(const DeviceStream& on, const Ids& distinct_ids,
                      const InsertOptions& options, const Assigned& assigned,
                      const Outputs& outputs) LODESTAR_REQUIRES(mutex_);
  // Reserves, then does the same. Where the table's policy has a cap, rows go
  // to make room, and ids that find none even so get no row; such a table
  // waits.
  Status InsertUnderCap(const DeviceStream& on, const Ids& distinct_ids,
                        const InsertOptions& options, const Assigned& assigned,
                        const Outputs& outputs) LODESTAR_REQUIRES(mutex_);
  Status FindLocked(const DeviceStream& on, FindCall call, void* rows) const
      LODESTAR_REQUIRES(mutex_);
  Status ReadRowsLocked(const DeviceStream& on, const Ids& ids,
                        const int64_t* positions, const uint32_t* refs,
                        const DeviceMissing& missing, void* rows) const
      LODESTAR_REQUIRES(mutex_);
  // Finds the rows of bags, and says so in *call.
  Status LocateLocked(const DeviceStream& on, const Ids& ids, const Bags& bags,
                      const DeviceMissing& missing, bool counts,
                      uint64_t* sources, PoolCall* call) const
      LODESTAR_REQUIRES(mutex_);
  Status RemoveLocked(const DeviceStream& on, const Ids& ids, bool evicted)
      LODESTAR_REQUIRES(mutex_);
  // After Fetch: what `policy` names, and `excess` rows in all if it takes
  // those that its order puts first, too.
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
  // Page-locked; what Fetch last read.
  DeviceTableState* fetched_ LODESTAR_PT_GUARDED_BY(mutex_) = nullptr;
  // No less than the table has, once all that was queued is done.
  int64_t rows_bound_ LODESTAR_GUARDED_BY(mutex_) = 0;
  int64_t cells_bound_ LODESTAR_GUARDED_BY(mutex_) = 0;
  RowInitializer initializer_ LODESTAR_GUARDED_BY(mutex_);
  AttachedOptimizer optimizer_ LODESTAR_GUARDED_BY(mutex_);
  int64_t step_ LODESTAR_GUARDED_BY(mutex_) = 0;
  bool own_step_ LODESTAR_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_STORE_H_
