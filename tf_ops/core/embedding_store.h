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
// updates of resident rows take no lock of a shard; what adds or removes rows
// plans without one, then locks the shards it touches in ascending order,
// reserves memory in all of them, and commits, which cannot fail: a call that
// returns an error has changed nothing.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_STORE_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tf_ops/core/arena.h"
#include "tf_ops/core/epoch.h"
#include "tf_ops/core/leaf_index.h"
#include "tf_ops/core/parallel.h"
#include "tf_ops/core/row_initializer.h"
#include "tf_ops/core/row_store.h"
#include "tf_ops/core/span.h"
#include "tf_ops/core/sparse_optimizer.h"
#include "tf_ops/core/status.h"

namespace lodestar {

// Where a row lay when it was looked up; reads check that it still does.
struct RowRef {
  uint32_t shard = 0;
  uint32_t row = LeafIndex::kNoRow;
  bool found() const { return row != LeafIndex::kNoRow; }
};

// What a missing id reads.
struct Missing {
  enum class Kind { kZeros, kInitial, kVector };
  Kind kind = Kind::kZeros;
  const float* vector = nullptr;  // kVector: D numbers
};

// The optimizer whose slots lie beside the rows; empty name: none yet.
struct AttachedOptimizer {
  std::string name;
  std::vector<std::string> slot_names;
  std::vector<float> slot_inits;
};

// Everything of N rows, ascending ids.
struct EmbeddingRows {
  std::vector<int64_t> ids;
  std::vector<float> values;  // [N, D]
  std::vector<float> slots;   // [S, N, D]
  std::vector<int64_t> frequencies;
  std::vector<int64_t> last_seen;
  AttachedOptimizer optimizer;
  int64_t step = 0;
  int64_t seed = 0;
  int64_t salt = 0;
};

// The same as views, in any order of ids.
struct EmbeddingRowsView {
  Span<const int64_t> ids;
  Span<const float> values;
  Span<const float> slots;  // empty: rows without optimizer slots
  Span<const int64_t> frequencies;
  Span<const int64_t> last_seen;
  AttachedOptimizer optimizer;
  bool with_counters = false;  // step, seed and salt are given
  int64_t step = 0;
  int64_t seed = 0;
  int64_t salt = 0;
};

struct EmbeddingStats {
  int64_t rows = 0;
  int64_t index_bytes = 0;
  int64_t row_bytes = 0;   // values and metadata
  int64_t slot_bytes = 0;  // optimizer slots
  int64_t hits = 0;        // counted look-ups only
  int64_t misses = 0;
  int64_t inserts = 0;
  int64_t removed = 0;
  int64_t gradients_dropped = 0;
  int64_t nonfinite_gradients = 0;
  int64_t capacity = 0;  // rows that fit the segments there are
  int64_t shards = 0;
};

class EmbeddingStore {
 public:
  // InvalidArgument: dim not in [1, 65536], num_shards not in [1, 4096].
  static Status Create(int64_t dim, int64_t num_shards,
                       const RowInitializer& initializer,
                       std::unique_ptr<EmbeddingStore>* out);

  int dim() const { return dim_; }

  // Rows of `ids` ([N, D], any ids, repeats allowed), and whether each was
  // found if `found` is not null. Ids equal to *padding_id read zeros.
  void Find(Span<const int64_t> ids, const int64_t* padding_id,
            const Missing& missing, float* rows, bool* found,
            const ParallelFor* parallel) const;

  struct SightingOptions {
    bool insert = false;  // make rows of ids that have none
    bool count = false;   // count a sighting of each id, once a step
  };
  // Where the rows of distinct ids are. resident[i], if wanted: whether
  // unique_ids[i] had a row before.
  // ResourceExhausted: out of memory; nothing changed.
  Status FindOrInsert(Span<const int64_t> unique_ids,
                      const SightingOptions& options, Span<RowRef> refs,
                      const ParallelFor* parallel, char* resident = nullptr);

  // The row of `id`, or what a missing id reads.
  void ReadRow(const RowRef& ref, int64_t id, const Missing& missing,
               float* row) const;

  // Begins to load a row that ReadRow is about to copy.
  void Prefetch(const RowRef& ref) const;

  // Updates the rows of distinct ids with their gradients [U, D], attaching the
  // optimizer at its first call, then sets the step to `next_step` (or advances
  // it, -1). Ids without a row are dropped and counted, or made first.
  // FailedPrecondition: another optimizer is attached.
  // ResourceExhausted: out of memory; nothing changed.
  Status Apply(Span<const int64_t> unique_ids, const float* gradients,
               const std::string& name, const SparseOptimizer& optimizer,
               Span<const float> slot_inits, bool create_missing,
               int64_t next_step, const ParallelFor* parallel);
  // FailedPrecondition: another optimizer is attached.
  Status CheckOptimizer(const std::string& name) const;
  void CountNonfiniteGradients(int64_t count) {
    nonfinite_gradients_.fetch_add(count, std::memory_order_relaxed);
  }

  // The last of equal ids wins; optimizer slots of existing rows are kept.
  Status InsertOrAssign(Span<const int64_t> ids, const float* rows,
                        const ParallelFor* parallel);
  // The number of rows removed.
  Status Remove(Span<const int64_t> ids, int64_t* removed);
  Status Clear();

  int64_t size() const { return size_.load(std::memory_order_relaxed); }
  // 0 for an id without a row.
  void Frequency(Span<const int64_t> ids, Span<int64_t> frequencies,
                 const ParallelFor* parallel) const;
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  void SetStep(int64_t step) { step_.store(step, std::memory_order_relaxed); }
  EmbeddingStats Stats() const;

  // ResourceExhausted: out of memory.
  Status Export(bool with_slots, EmbeddingRows* out,
                const ParallelFor* parallel) const;
  // replace: the table holds exactly `rows` afterwards, counters included;
  // else rows are added to it, or overwrite those of their ids.
  // InvalidArgument: an id twice, sizes that do not fit.
  // FailedPrecondition: slots of another optimizer than the attached one.
  Status Import(const EmbeddingRowsView& rows, bool replace,
                const ParallelFor* parallel);

 private:
  struct Shard {
    Shard(int dim, Arena* arena, EpochDomain* epochs)
        : index(epochs), rows(dim, arena) {}
    mutable std::mutex mutex;  // held by who adds or removes rows
    LeafIndex index;
    RowStore rows;
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

   private:
    std::vector<std::unique_lock<std::mutex>> locks_;
  };

  EmbeddingStore(int dim, int num_shards, const RowInitializer& initializer);

  Place PlaceOf(int64_t id) const;
  // Inside an epoch guard or the shard's mutex.
  uint32_t FindRow(const Shard& shard, uint32_t tag, int64_t id) const;
  // An id on its way to its row.
  struct Probe {
    uint32_t tag;
    RowRef ref;
    LeafIndex::Cursor cursor;  // behind ref's slot
  };
  void BeginRun(Span<const int64_t> ids, Probe* probes) const;
  void AdvanceRun(int count, Probe* probes) const;
  // Where the id is, if anywhere.
  RowRef Confirm(int64_t id, Probe* probe) const;
  // visit(first, run, probes) for runs of ids from ids[first] on, with memory
  // on its way to the first row of each id's tag; it may be another id's.
  template <typename Visit>
  void ForEachRun(Span<const int64_t> ids, const Visit& visit) const;
  void FindAll(Span<const int64_t> ids, Span<RowRef> refs,
               const ParallelFor* parallel) const;
  void ReadMissing(int64_t id, const Missing& missing, float* row) const;
  void Touch(Span<const int64_t> ids, Span<const RowRef> refs,
             const ParallelFor* parallel);

  // Adds rows for the ids at `indices` that have none; fill(index, ref) writes
  // value and slots before anyone can see them. If `optimizer` is given and the
  // table has none yet, it is attached in the same way: both or nothing.
  using Fill = std::function<void(int64_t index, const RowRef& ref)>;
  Status InsertMissing(Span<const int64_t> ids,
                       const std::vector<int64_t>& indices, int64_t last_seen,
                       uint32_t frequency, Span<RowRef> refs,
                       const ParallelFor* parallel, const Fill& fill,
                       const AttachedOptimizer* optimizer = nullptr);
  void FillNewRow(int64_t id, const RowRef& ref) const;
  void FillSlots(const RowRef& ref) const;
  // With every shard's mutex: memory for its slots, then the rest, which cannot
  // fail.
  Status ReserveOptimizer(const AttachedOptimizer& optimizer);
  void Attach(AttachedOptimizer optimizer);
  // Which attachment of this optimizer is in force; kNoAttachment: none.
  uint64_t AttachmentOf(const std::string& name) const;
  Status ReplaceAll(const EmbeddingRowsView& rows, const ParallelFor* parallel);
  Status Merge(const EmbeddingRowsView& rows, const ParallelFor* parallel);
  void WriteImported(const EmbeddingRowsView& rows, int64_t i,
                     const RowRef& ref) const;

  const int dim_;
  RowInitializer initializer_;
  Arena arena_;
  mutable EpochDomain epochs_;
  std::vector<std::unique_ptr<Shard>> shards_;

  mutable std::mutex optimizer_mutex_;  // taken after every shard's
  AttachedOptimizer optimizer_;
  std::atomic<bool> attached_{false};
  static constexpr uint64_t kNoAttachment = 0;
  // Tells an update that an import has changed the optimizer under it.
  std::atomic<uint64_t> attachment_{kNoAttachment};

  std::atomic<int64_t> size_{0};
  std::atomic<int64_t> step_{0};
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> misses_{0};
  std::atomic<int64_t> inserts_{0};
  std::atomic<int64_t> removed_{0};
  std::atomic<int64_t> gradients_dropped_{0};
  std::atomic<int64_t> nonfinite_gradients_{0};
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_STORE_H_
