// EvictionList: the rows of one shard in the order in which they are to go,
// at 8 bytes a row.
//
//   group 0   head <-> row <-> row <-> ... <-> tail     oldest sighting first
//   group 1   head <-> ...                              lfu: a group for each
//   ...                                                 frequency below 256
//
// A sighting moves a row to the end of its group: O(1), nothing is compared.
// Rows of one step stand in order of arrival until the front of the list
// reaches them; only then are they sorted by Mix64(id), each row once. Above
// 255 sightings eight frequencies of every octave share a group, which is
// sorted whole when all groups before it are used up.
//
// Not thread-safe: the shard's mutex is held.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_EVICTION_LIST_H_
#define LODESTAR_TF_OPS_CORE_ROWS_EVICTION_LIST_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

// What is compared; the smallest row goes first.
struct EvictionKey {
  uint32_t frequency = 0;  // 0 for lru
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

  // Links come from `arena`.
  EvictionList(EvictionPolicy::Order order, const RowStore* rows, Arena* arena);
  EvictionList(const EvictionList&) = delete;
  EvictionList& operator=(const EvictionList&) = delete;

  // Room for rows [0, capacity). ResourceExhausted: out of memory.
  Status Reserve(int64_t capacity);

  // Takes a row in where its metadata say. Constant time where no row of its
  // group was seen later; else it passes over those that were.
  void Add(uint32_t row);
  // REQUIRES: the metadata are those that it was added with.
  void Remove(uint32_t row);
  // A row takes the place of another, whose metadata it has.
  void Move(uint32_t from, uint32_t to);
  void Clear();
  // Gives back to the system what was reserved beyond rows [0, capacity).
  void Shrink(int64_t capacity);
  // Says that rows were added in ascending order of their keys.
  void MarkSorted();

  EvictionKey KeyOf(uint32_t row) const;
  // From the row that was seen longest ago on; kNone: no more. Lru only.
  uint32_t oldest() const { return groups_[0].head; }
  uint32_t after(uint32_t row) const { return next(row); }

  // Begins to load what Remove and Add are about to touch.
  void Prefetch(uint32_t row) const { __builtin_prefetch(&link(row), 1); }
  // The same of the rows beside it, which its own link tells.
  void PrefetchNeighbors(uint32_t row) const {
    for (const uint32_t beside : {previous(row), next(row)}) {
      if (beside != kNone) __builtin_prefetch(&link(beside), 1);
    }
  }

  // A marked row is passed over by Victims.
  void Mark(uint32_t row) { link(row).previous |= kMark; }
  void Unmark(uint32_t row) { link(row).previous &= ~kMark; }

  int64_t bytes() const;

  // The rows in ascending order of their keys, without marked ones and those
  // last seen at `now`. Nothing else may change the list meanwhile.
  class Victims {
   public:
    Victims(EvictionList* list, int64_t now) : list_(list), now_(now) {}
    // kNone: there is no more.
    uint32_t Peek();
    // Takes the row that Peek gave off the list.
    void Pop();

   private:
    void Step();

    EvictionList* list_;
    int64_t now_;
    int group_ = -1;
    uint32_t row_ = kNone;
    uint32_t sorted_to_ = kNone;  // the last row of the sorted run we are in
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
    uint32_t hint = kNone;    // before it the last row went in; kNone: the end
    uint32_t sorted = kNone;  // [head, sorted] is in order; kNone: nothing is
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
  // The first row of the group that was last seen after `step`.
  uint32_t SeekAfter(Group* group, int64_t step);
  // Sorts the rows from `first` that were seen in one step (all that follow in
  // a group of several frequencies); returns the new first and last one.
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
  size_t reserved_ = 0;  // segments of links_; later ones were given back
  std::vector<Group> groups_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_EVICTION_LIST_H_
