// LeafIndex: 32-bit tags -> 32-bit row indices, for one shard of a store, by
// extendible hashing (Fagin et al., 1979).
//
//   directory_ (top `depth` bits of the tag)      leaf: open addressing
//   +----+----+----+----+                         +-----------+-----------+---
//   | *  | *  | *  | *  |----------------------->  | tag | row | tag | row |...
//   +-|--+-|--+----+----+                         +-----------+-----------+---
//     +----+--> a leaf with fewer bits is shared
//
// The index holds no ids: a tag is the low half of the id's hash, and the
// caller compares the id that the row itself stores. A cell's place in its leaf
// is its tag's next bits scaled to the capacity, so a leaf can be of any size
// and growing it is one sequential sweep that reads no row.
//
// A leaf grows alone, by a fraction; one that would pass its limit (8k to 16k
// entries, different for each leaf so that they do not all split at one table
// size) splits in two. So no call pays for more than the leaves it touches.
//
// Threads: any number of readers inside an EpochDomain::Guard, one writer at a
// time. A reader sees each cell before or after a write, never between.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_LEAF_INDEX_H_
#define LODESTAR_TF_OPS_CORE_ROWS_LEAF_INDEX_H_

#include <atomic>
#include <cstdint>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/memory/epoch.h"

namespace lodestar {

class LeafIndex {
 public:
  static constexpr uint32_t kNoRow = 0xffffffff;
  static constexpr uint32_t kMaxRows = 0xfffffffe;

  // Indices of different `salt` do not split their leaves at one size.
  explicit LeafIndex(EpochDomain* epochs, uint32_t salt = 0)
      : epochs_(epochs), salt_(salt) {}
  ~LeafIndex();
  LeafIndex(const LeafIndex&) = delete;
  LeafIndex& operator=(const LeafIndex&) = delete;

  // Where a lookup begins. Valid inside the guard it was made in.
  struct Cursor {
    const std::atomic<uint64_t>* cells = nullptr;
    uint32_t capacity = 0;
    uint32_t position = 0;
  };
  Cursor Begin(uint32_t tag) const {
    const Directory* directory = directory_.load(std::memory_order_seq_cst);
    if (directory == nullptr) return Cursor();
    const Leaf* leaf = directory->leaf(tag).load(std::memory_order_seq_cst);
    return {leaf->cells(), leaf->capacity, leaf->Position(tag)};
  }
  static void Prefetch(const Cursor& cursor) {
    __builtin_prefetch(cursor.cells + cursor.position);
  }

  // Moves to the next entry of this tag and returns its row; kNoRow: no more.
  static uint32_t Next(uint32_t tag, Cursor* cursor) {
    if (cursor->cells == nullptr) return kNoRow;
    while (true) {
      const uint64_t cell =
          cursor->cells[cursor->position].load(std::memory_order_acquire);
      if (cell == kEmpty) return kNoRow;
      if (++cursor->position == cursor->capacity) cursor->position = 0;
      const uint32_t row = static_cast<uint32_t>(cell);
      if (static_cast<uint32_t>(cell >> 32) == tag && row < kMaxRows) {
        return row;
      }
    }
  }

  // The writer's side.

  // Makes room for one more entry of each tag, so that as many Insert calls
  // cannot fail. ResourceExhausted: out of memory; entries are as before.
  Status Reserve(Span<const uint32_t> tags);
  // The same for `entries` entries of any tags, which lie evenly, so that the
  // index seldom grows on its way there. Each Insert is still reserved for.
  Status ReserveEvenly(int64_t entries);

  // REQUIRES: reserved for.
  void Insert(uint32_t tag, uint32_t row);

  // REQUIRES: the entry is there.
  void Remove(uint32_t tag, uint32_t row);

  // The entry's row has moved: readers find it in one place or the other.
  // REQUIRES: the entry is there.
  void Move(uint32_t tag, uint32_t from, uint32_t to);

  // Makes the leaf of this tag as small as its entries allow, and sets *tag to
  // the first one of the next leaf; 0: this was the last.
  // ResourceExhausted: out of memory; entries are as before.
  Status CompactLeaf(uint32_t* tag);

  // Takes what `fresh` holds in place of what this holds.
  void Replace(LeafIndex* fresh);

  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  // A free cell ends a search; a removed one does not.
  static constexpr uint64_t kEmpty = 0xffffffffffffffffULL;
  static constexpr uint64_t kRemoved = 0xfffffffffffffffeULL;
  static constexpr int kMaxDepth = 20;

  // Headers lie close together, apart from the cells: every lookup reads one.
  struct alignas(8) Leaf : EpochDomain::Retirable {
    uint32_t capacity;
    uint32_t used;      // entries and removed ones
    uint32_t live;      // entries
    uint32_t reserved;  // counted by Reserve, zero outside it
    uint32_t limit;     // entries at which it splits
    int depth;
    uint32_t prefix;  // the first `depth` bits of its tags

    // In the pages.
    std::atomic<uint64_t>* cells() const {
      return static_cast<std::atomic<uint64_t>*>(pages.address);
    }
    uint32_t Position(uint32_t tag) const {
      return FastRange32(
          static_cast<uint32_t>(static_cast<uint64_t>(tag) << depth), capacity);
    }
    bool Fits() const {
      return static_cast<uint64_t>(used + reserved) * 4 <=
             static_cast<uint64_t>(capacity) * 3;
    }
  };
  struct alignas(8) Directory : EpochDomain::Retirable {
    int depth;
    uint32_t size() const { return 1u << depth; }
    std::atomic<Leaf*>* leaves() const {
      return reinterpret_cast<std::atomic<Leaf*>*>(
          const_cast<Directory*>(this) + 1);
    }
    std::atomic<Leaf*>& leaf(uint32_t tag) const {
      return leaves()[static_cast<uint64_t>(tag) >> (32 - depth)];
    }
  };

  Leaf* NewLeaf(int depth, uint32_t prefix, uint64_t entries);
  Directory* NewDirectory(int depth);
  void Publish(Leaf* leaf);
  void Uncount(const Leaf* leaf);
  void Uncount(const Directory* directory);
  void Retire(Leaf* leaf);
  void Retire(Directory* directory);
  static void Put(Leaf* leaf, uint64_t cell);
  static std::atomic<uint64_t>* CellOf(Leaf* leaf, uint32_t tag, uint32_t row);
  Leaf* LeafOf(uint32_t tag) const {
    return directory_.load(std::memory_order_relaxed)
        ->leaf(tag)
        .load(std::memory_order_relaxed);
  }
  // To the size of its entries and reserved ones.
  bool Rebuild(Leaf* leaf);
  bool Split(Leaf* leaf);

  EpochDomain* const epochs_;
  const uint32_t salt_;
  std::atomic<Directory*> directory_{nullptr};
  std::atomic<int64_t> bytes_{0};
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_LEAF_INDEX_H_
