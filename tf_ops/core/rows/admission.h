// Admission: counts occurrences of ids that have no row yet.
//
//   PendingIds      id -> occurrences, last step; one per shard
//   CountingSketch  counters of bounded memory shared by all ids; one per table

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ADMISSION_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/memory/epoch.h"
#include "tf_ops/core/memory/page_run.h"
#include "tf_ops/core/rows/eviction_list.h"
#include "tf_ops/core/rows/leaf_index.h"
#include "tf_ops/core/rows/row_store.h"

namespace lodestar {

// Exact counts, stored in a RowStore as rows without columns, so they grow
// incrementally like rows. Not thread-safe: requires the shard's mutex.
class PendingIds {
 public:
  // by_age: keeps the ids ordered by last step, at 8 bytes per id.
  PendingIds(EpochDomain* epochs, bool by_age);

  // Returns kNoRow if the id is not pending.
  uint32_t Find(uint32_t tag, int64_t id) const;
  uint32_t occurrences(uint32_t entry) const;
  int64_t last_seen(uint32_t entry) const;

  // Makes room for one Add of each tag. Returns ResourceExhausted if out of
  // memory.
  Status Reserve(Span<const uint32_t> tags);
  void Add(uint32_t tag, int64_t id, uint32_t occurrences, int64_t last_seen);
  void Set(uint32_t entry, uint32_t occurrences, int64_t last_seen);
  void Remove(uint32_t tag, uint32_t entry);
  void Clear();
  // Removes the ids last seen more than max_age steps before `now`. Allocates
  // nothing. Looks at all ids unless they are ordered by last step. tag_of(id):
  // the tag of an id.
  void RemoveOlder(int64_t max_age, int64_t now,
                   const std::function<uint32_t(int64_t)>& tag_of);

  // See RowStore and LeafIndex. tag_of(id): the tag of an id.
  bool Compact(int64_t most, uint32_t* low,
               const std::function<uint32_t(int64_t)>& tag_of);
  bool ReleaseSegment();
  Status CompactLeaf(uint32_t* tag) { return index_.CompactLeaf(tag); }

  int64_t size() const { return size_; }
  int64_t bytes() const {
    return index_.bytes() + entries_.row_bytes() +
           (order_.has_value() ? order_->bytes() : 0);
  }
  // Calls fn(id, occurrences, last_seen) for every entry.
  void ForEach(const std::function<void(int64_t, uint32_t, int64_t)>& fn) const;

 private:
  Arena arena_;
  EpochDomain* const epochs_;
  LeafIndex index_;
  RowStore entries_;
  std::optional<EvictionList> order_;  // by last step
  int64_t size_ = 0;
};

// A counting Bloom filter with conservative update (Estan, Varghese: New
// Directions in Traffic Measurement and Accounting, SIGCOMM 2002). An estimate
// is never below the true count. Counters saturate at 255. Not thread-safe.
//
// Reserve maps one byte of address space per counter, which takes microseconds
// for any size. The system makes a page of 4,096 counters at the first count in
// it. Until most pages exist, counting an id costs two page faults per hash (a
// read and a write, about 10 us for three hashes) and as many pages of memory
// as there are hashes.
class CountingSketch {
 public:
  // The counters are allocated by the first Reserve.
  CountingSketch(int64_t num_counters, int num_hashes)
      : num_counters_(num_counters), num_hashes_(num_hashes) {}
  CountingSketch(const CountingSketch&) = delete;
  CountingSketch& operator=(const CountingSketch&) = delete;
  ~CountingSketch() { Clear(); }

  // Returns ResourceExhausted if the system does not grant that much memory.
  Status Reserve();
  uint32_t Estimate(int64_t id) const;
  // Raises each counter of `id` to at least `occurrences`, so the result does
  // not depend on the order of ids that were estimated together.
  void Raise(int64_t id, uint32_t occurrences);
  void Clear();

  // Empty if nothing was counted.
  Span<const uint8_t> counters() const {
    return {data(), counted_ ? num_counters_ : 0};
  }
  // Sets all counters; none are counted if `counters` is empty. Returns
  // ResourceExhausted if out of memory. Requires: as many counters as here.
  Status Assign(Span<const uint8_t> counters);
  // Requires: both have as many counters and hashes.
  void Swap(CountingSketch* other) {
    std::swap(pages_, other->pages_);
    std::swap(counted_, other->counted_);
  }

 private:
  uint8_t* data() const { return static_cast<uint8_t*>(pages_.address); }

  const int64_t num_counters_;
  const int num_hashes_;
  PageRun pages_;         // a null address before Reserve
  bool counted_ = false;  // whether Raise or Assign was called
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ADMISSION_H_
