// RecordMemory: samples that are held in memory, to be shuffled and merged;
// what Python calls InMemoryDataset.
//
//   order    (c1 r7) (c0 r2) (c1 r0) ...     one entry a sample
//   chunks   c0: columns of some thousand samples    c1: ...
//
// Chunks never change. What is in memory at one time are Contents, which never
// change either: whoever reads holds them, and a change makes the next. So
// samples that were released live until their last reader is done.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_RECORD_MEMORY_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_RECORD_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/records/slot_batch.h"
#include "tf_ops/core/records/slot_rows.h"

namespace lodestar {

// Thread-safe. An allocation that fails changes nothing.
class RecordMemory {
 public:
  using Chunk = std::shared_ptr<const SlotRows>;

  // What merging and dropping do with a column.
  enum class Role {
    kField,   // of the line: a merged sample has that of its first one
    kDense,   // a value of 0 counts; all samples that are merged must agree
    kSparse,  // values may be dropped and put together
  };

  struct Options {
    std::vector<ColumnSpec> specs;
    std::vector<Role> roles;  // one a column
    // Whether sparse values of 0, and floats below 1e-6 in magnitude, are
    // dropped; of an id and its weight both, if either is. A slot without any
    // value then has one 0 (with a weight of 0).
    bool drop_zeros = true;
  };

  class Contents {
   public:
    int64_t num_samples() const { return static_cast<int64_t>(order_.size()); }
    // Of samples and order; differs where they differ, but for bad luck.
    uint64_t fingerprint() const { return fingerprint_; }
    int64_t Bytes() const;

    // Adds these samples to `batch`. REQUIRES: each is below num_samples().
    void Gather(const std::vector<int64_t>& samples, SlotBatch* batch) const;

   private:
    friend class RecordMemory;
    struct Position {
      uint32_t chunk;
      uint32_t row;
    };

    // Adds a place for each row of `chunk`.
    void AddChunk(Chunk chunk);

    std::vector<Chunk> chunks_;
    std::vector<Position> order_;
    uint64_t fingerprint_ = 0;
  };

  // Samples on their way into memory; of one thread.
  class Load {
   public:
    // `memory` must outlive the load.
    explicit Load(const RecordMemory* memory);
    void Add(const SlotRows& rows);
    int64_t num_samples() const { return num_samples_; }

   private:
    friend class RecordMemory;
    // Of contents with the fingerprint `before` and what was loaded.
    uint64_t Fingerprint(uint64_t before) const;

    const RecordMemory* const memory_;
    std::vector<Chunk> chunks_;
    int64_t num_samples_ = 0;
    // Of the values and of the lengths in each column, whatever the chunks.
    std::vector<uint64_t> hashes_;
  };

  struct MergeCounts {
    int64_t merged = 0;   // samples that were made of several
    int64_t too_few = 0;  // samples dropped: fewer than min_size had their id
    int64_t conflicting = 0;  // samples dropped: their dense slots disagree
  };

  // REQUIRES: one role a column.
  explicit RecordMemory(Options options);

  const Options& options() const { return options_; }
  std::shared_ptr<const Contents> Current() const;

  // Copies samples of `contents`. REQUIRES: each is below its num_samples().
  SlotRows Copy(const Contents& contents, Span<const int64_t> samples) const;
  // What was loaded, alone: sample i is the order[i]-th that was added.
  // REQUIRES: each of them is in `order` once.
  std::shared_ptr<const Contents> Arrange(const Load& load,
                                          Span<const int64_t> order) const;
  // Puts `contents`, of this memory's columns, in the place of what is there.
  void Replace(std::shared_ptr<const Contents> contents);

  // Adds what was loaded behind what is there, all at once.
  void Join(const Load& load);
  void Release();

  // Puts the samples in an order drawn by `seed`.
  void GlobalShuffle(uint64_t seed);
  // Gives each sample the values that another one, drawn by `seed`, has in
  // `columns`: sparse columns that are used, and with ids their weights.
  void SlotsShuffle(const std::vector<int64_t>& columns, uint64_t seed);
  // Makes one sample of all that have the same text in column `id_column`,
  // where it stands first, if they are min_size or more; keeps the others, or
  // drops them. Sparse values are put together, each value only once
  // if `erase_duplicates`. In a dense column samples whose values are all 0
  // give way to others; where these differ, all are dropped if
  // `erase_duplicates`, else the first one's values stay.
  MergeCounts MergeByText(int64_t id_column, int64_t min_size,
                          bool keep_unmerged, bool erase_duplicates);

 private:
  // Samples in a row that make one; see record_memory.cc.
  class Merger;

  bool IsZero(int64_t column, const SlotRows& rows, int64_t value) const;
  // What is kept of `rows`.
  Chunk Pack(const SlotRows& rows) const;
  // Replaces the current contents by what `make` returns for them.
  void Change(
      const std::function<std::shared_ptr<Contents>(const Contents&)>& make);

  const Options options_;
  // The weights of a sparse column of ids, and the ids of one of weights; -1
  // where there are none or one of the two is not used.
  std::vector<int64_t> partners_;

  Mutex change_mutex_;  // held by one change at a time
  // Held only briefly.
  mutable Mutex mutex_ LODESTAR_ACQUIRED_AFTER(change_mutex_);
  std::shared_ptr<const Contents> current_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_RECORD_MEMORY_H_
