// EvictionList: the rows of one shard in eviction order, at 8 bytes per row. An
// access moves a row to the tail of its group in constant time; rows of the
// same step are sorted only when they become the next candidates.
// docs/internals/storage.md explains groups and sorting.
//
// Not thread-safe: requires the shard's mutex.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_EVICTION_LIST_H_
#define LODESTAR_TF_OPS_CORE_ROWS_EVICTION_LIST_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

// The sort key; the row with the smallest key is evicted first.
struct EvictionKey {
  uint32_t frequency = 0;  // 0 for LRU
  int64_t last_seen = 0;
  uint64_t mixed_id = 0;

  bool operator<(const EvictionKey& other) const {
    if (frequency != other.frequency) return frequency < other.frequency;
    if (last_seen != other.last_seen) return last_seen < other.last_seen;
    return mixed_id < other.mixed_id;
  }
};

class EvictionList {
 public:
  static constexpr uint32_t kNone = 0x7fffffff;

  // Links are allocated from `arena`.
  EvictionList(EvictionPolicy::Order order, const RowStore* rows, Arena* arena);
  EvictionList(const EvictionList&) = delete;
  EvictionList& operator=(const EvictionList&) = delete;

  // Makes room for rows [0, capacity). Returns ResourceExhausted if out of
  // memory.
  Status Reserve(int64_t capacity);

  // Inserts a row at the position given by its metadata. Takes constant time
  // unless rows of its group were seen later; those are skipped one by one.
  void Add(uint32_t row);
  // Requires: the metadata are unchanged since Add.
  void Remove(uint32_t row);
  // Replaces `from` with `to`, which has the same metadata.
  void Move(uint32_t from, uint32_t to);
  void Clear();
  // Returns the memory reserved beyond rows [0, capacity) to the system.
  void Shrink(int64_t capacity);
  // Declares that rows were added in ascending order of (last seen, mixed id).
  void MarkSorted();

  EvictionKey KeyOf(uint32_t row) const;
  // The key of a row in LRU order.
  static EvictionKey AgeOf(const RowMeta& meta) {
    return {
        0, meta.last_seen.load(std::memory_order_relaxed),
        Mix64(static_cast<uint64_t>(meta.id.load(std::memory_order_relaxed)))};
  }
  // Iterates from the row seen longest ago; kNone at the end. LRU only.
  uint32_t oldest() const { return groups_[0].head; }
  uint32_t after(uint32_t row) const { return next(row); }

  // Prefetches the link that Remove and Add access.
  void Prefetch(uint32_t row) const { __builtin_prefetch(&link(row), 1); }
  // Prefetches the links of both neighbors. Reads the row's own link.
  void PrefetchNeighbors(uint32_t row) const {
    for (const uint32_t beside : {previous(row), next(row)}) {
      if (beside != kNone) __builtin_prefetch(&link(beside), 1);
    }
  }

  // Victims skips marked rows.
  void Mark(uint32_t row) { link(row).previous |= kMark; }
  void Unmark(uint32_t row) { link(row).previous &= ~kMark; }

  int64_t bytes() const;

  // Iterates over the rows in ascending order of their keys, without marked
  // rows and those last seen at `now`. The list must not change during the
  // iteration, except through Pop.
  class Victims {
   public:
    Victims(EvictionList* list, int64_t now) : list_(list), now_(now) {}
    // Returns kNone at the end.
    uint32_t Peek();
    // Removes the row returned by Peek from the list.
    void Pop();

   private:
    void Step();

    EvictionList* list_;
    int64_t now_;
    int group_ = -1;
    uint32_t row_ = kNone;
    uint32_t sorted_to_ = kNone;  // the last row of the current sorted run
  };

 private:
  static constexpr uint32_t kMark = 0x80000000;
  static constexpr int kSegmentLinks = 1024;
  static constexpr int kExact = 256;
  static constexpr int kGroups = kExact + 24 * 8;

  struct Link {
    uint32_t previous;  // with kMark
    uint32_t next;
  };
  struct Group {
    uint32_t head = kNone;
    uint32_t tail = kNone;
    uint32_t hint = kNone;    // the last row was added before it; kNone: end
    uint32_t sorted = kNone;  // [head, sorted] is in order; kNone: empty
  };

  Link& link(uint32_t row) const {
    return links_[row / kSegmentLinks][row % kSegmentLinks];
  }
  uint32_t previous(uint32_t row) const { return link(row).previous & ~kMark; }
  uint32_t next(uint32_t row) const { return link(row).next; }
  void SetPrevious(uint32_t row, uint32_t to) {
    Link& l = link(row);
    l.previous = (l.previous & kMark) | to;
  }
  int64_t LastSeen(uint32_t row) const {
    return rows_->meta(row)->last_seen.load(std::memory_order_relaxed);
  }
  int GroupOf(uint32_t row) const;
  bool exact(int group) const { return group < kExact; }
  // Returns the first row of the group that was last seen after `step`.
  uint32_t SeekAfter(Group* group, int64_t step);
  // Sorts the rows from `first` on that were seen in one step (in a group of
  // several frequencies: all that follow). Returns the new first and last row.
  struct Run {
    uint32_t first;
    uint32_t last;
  };
  Run Sort(int group, uint32_t first);
  uint32_t Merge(uint32_t a, uint32_t b);

  const EvictionPolicy::Order order_;
  const RowStore* const rows_;
  Arena* const arena_;
  std::vector<Link*> links_;
  size_t reserved_ = 0;  // segments of links_ in use; the rest were returned
  std::vector<Group> groups_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_EVICTION_LIST_H_
