// RecordMemory: samples held in memory, to be shuffled and merged;
// InMemoryDataset in Python.
//
//   order    (c1 r7) (c0 r2) (c1 r0) ...     one entry per sample
//   chunks   c0: columns of some thousand samples    c1: ...
//
// Chunks and Contents are immutable. Readers share ownership of the Contents
// they read, and each change makes new Contents. Released samples live until
// their last reader is done.

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

// Thread-safe. A failed allocation changes nothing.
class RecordMemory {
 public:
  using Chunk = std::shared_ptr<const SlotRows>;

  // How merging and dropping treat a column.
  enum class Role {
    kField,   // of the line; a merged sample has that of its first sample
    kDense,   // 0 is a value; merged samples must agree
    kSparse,  // values may be dropped and concatenated
  };

  struct Options {
    std::vector<ColumnSpec> specs;
    std::vector<Role> roles;  // one per column
    // Whether to drop sparse values of 0, and floats below 1e-6 in magnitude;
    // an id and its weight are dropped together. A slot left without values
    // then has one 0 (with a weight of 0).
    bool drop_zeros = true;
  };

  class Contents {
   public:
    int64_t num_samples() const { return static_cast<int64_t>(order_.size()); }
    // Hash of the samples and their order.
    uint64_t fingerprint() const { return fingerprint_; }
    int64_t Bytes() const;

    // Adds these samples to `batch`. Requires: each is below num_samples().
    void Gather(const std::vector<int64_t>& samples, SlotBatch* batch) const;

   private:
    friend class RecordMemory;
    struct Position {
      uint32_t chunk;
      uint32_t row;
    };

    // Adds an entry for each row of `chunk`.
    void AddChunk(Chunk chunk);

    std::vector<Chunk> chunks_;
    std::vector<Position> order_;
    uint64_t fingerprint_ = 0;
  };

  // Samples being loaded. Not thread-safe.
  class Load {
   public:
    // `memory` must outlive this object.
    explicit Load(const RecordMemory* memory);
    void Add(const SlotRows& rows);
    int64_t num_samples() const { return num_samples_; }

   private:
    friend class RecordMemory;
    // Fingerprint of contents with the fingerprint `before` followed by the
    // load.
    uint64_t Fingerprint(uint64_t before) const;

    const RecordMemory* const memory_;
    std::vector<Chunk> chunks_;
    int64_t num_samples_ = 0;
    // Hashes of the values and of the lengths in each column, independent of
    // the chunks.
    std::vector<uint64_t> hashes_;
  };

  struct MergeCounts {
    int64_t merged = 0;   // samples made from several
    int64_t too_few = 0;  // samples dropped: fewer than min_size had their id
    int64_t conflicting = 0;  // samples dropped: their dense slots disagree
  };

  // Requires: one role per column.
  explicit RecordMemory(Options options);

  const Options& options() const { return options_; }
  std::shared_ptr<const Contents> Current() const;

  // Copies samples of `contents`. Requires: each is below its num_samples().
  SlotRows Copy(const Contents& contents, Span<const int64_t> samples) const;
  // Returns Contents of the load alone, in which sample i is the order[i]-th
  // that was added. Requires: `order` is a permutation.
  std::shared_ptr<const Contents> Arrange(const Load& load,
                                          Span<const int64_t> order) const;
  // Replaces the current contents by `contents`, which must have the same
  // columns.
  void Replace(std::shared_ptr<const Contents> contents);

  // Appends the load to the current contents, atomically.
  void Join(const Load& load);
  void Release();

  // Shuffles the samples. The order is a function of `seed`.
  void GlobalShuffle(uint64_t seed);
  // Shuffles the values of `columns`, and of their weights, among the samples,
  // as a function of `seed`.
  void SlotsShuffle(const std::vector<int64_t>& columns, uint64_t seed);
  // Merges all samples with the same string in `id_column`, at the position of
  // the first one, if there are at least min_size. Keeps or drops the others.
  // Concatenates sparse values, without duplicates if `erase_duplicates`. In a
  // dense column, samples whose values are all 0 yield to others. If the others
  // differ, drops all samples if `erase_duplicates`, else keeps the first one's
  // values.
  MergeCounts MergeByText(int64_t id_column, int64_t min_size,
                          bool keep_unmerged, bool erase_duplicates);

 private:
  // Merges a run of samples into one.
  class Merger;

  bool IsZero(int64_t column, const SlotRows& rows, int64_t value) const;
  // Returns a copy of the rows and values to be kept.
  Chunk Pack(const SlotRows& rows) const;
  // Replaces the current contents by the result of `make`.
  void Change(
      const std::function<std::shared_ptr<Contents>(const Contents&)>& make);

  const Options options_;
  // The weights of a sparse column of ids, and the ids of a column of weights;
  // -1 if there are none or one of the two is not used.
  std::vector<int64_t> partners_;

  Mutex change_mutex_;  // serializes changes
  // Held only briefly.
  mutable Mutex mutex_ LODESTAR_ACQUIRED_AFTER(change_mutex_);
  std::shared_ptr<const Contents> current_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_RECORD_MEMORY_H_
