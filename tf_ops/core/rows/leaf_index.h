// LeafIndex: maps 32-bit tags to 32-bit row indices for one shard, by
// extendible hashing (Fagin et al., 1979). A leaf grows or splits on its own,
// so no call pays for more than the leaves it touches. The index stores no ids;
// callers compare the id in the row's metadata. docs/internals/storage.md has a
// picture.
//
// Threads: any number of readers inside an EpochDomain::Guard, one writer at a
// time. A reader sees each cell either before or after a write, never in
// between.

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

  // Indices with different `salt` split their leaves at different sizes.
  explicit LeafIndex(EpochDomain* epochs, uint32_t salt = 0)
      : epochs_(epochs), salt_(salt) {}
  ~LeafIndex();
  LeafIndex(const LeafIndex&) = delete;
  LeafIndex& operator=(const LeafIndex&) = delete;

  // Start of a lookup. Valid inside the guard it was created in.
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
  // Most searches read two or three cells. About one in seven reads the next
  // cache line too.
  static void Prefetch(const Cursor& cursor) {
    __builtin_prefetch(cursor.cells + cursor.position);
    __builtin_prefetch(cursor.cells + cursor.position + 4);
  }

  // Advances to the next entry of this tag and returns its row, or kNoRow at
  // the end.
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

  // Writers only.

  // Makes room for one more entry of each tag, so that as many Insert calls
  // cannot fail. Returns ResourceExhausted if out of memory; entries are
  // unchanged. Scans the tags once, and once more if a leaf splits (tags that
  // share their first bits take more scans). Allocates 8 bytes per touched leaf
  // and, if a leaf splits, about 64 bytes per leaf in a temporary histogram.
  Status Reserve(Span<const uint32_t> tags);
  // Makes room for `entries` evenly distributed tags, so the index seldom grows
  // until it holds that many. Each Insert still needs Reserve. Takes constant
  // time per leaf and allocates nothing else.
  Status ReserveEvenly(int64_t entries);

  // Requires: Reserve was called for this entry.
  void Insert(uint32_t tag, uint32_t row);

  // Requires: the entry exists.
  void Remove(uint32_t tag, uint32_t row);

  // Changes the row of an entry. Readers find it at one place or the other.
  // Requires: the entry exists.
  void Move(uint32_t tag, uint32_t from, uint32_t to);

  // Shrinks the leaf of this tag to its entries and sets *tag to the first tag
  // of the next leaf, or to 0 after the last one. Returns ResourceExhausted if
  // out of memory; entries are unchanged.
  Status CompactLeaf(uint32_t* tag);

  // Moves the content of `fresh` here and drops the previous content.
  void Replace(LeafIndex* fresh);

  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  // An empty cell ends a search; a removed one does not.
  static constexpr uint64_t kEmpty = 0xffffffffffffffffULL;
  static constexpr uint64_t kRemoved = 0xfffffffffffffffeULL;
  static constexpr int kMaxDepth = 20;

  // Headers are allocated close together and apart from the cells, because
  // every lookup reads one.
  struct alignas(8) Leaf : EpochDomain::Retirable {
    uint32_t capacity;
    uint32_t used;      // entries and removed cells
    uint32_t live;      // entries
    uint32_t reserved;  // counted by Reserve, zero outside of it
    uint32_t limit;     // number of entries at which it splits
    int depth;
    uint32_t prefix;  // the first `depth` bits of its tags

    // The first tag after those of this leaf.
    uint64_t end() const { return (uint64_t{prefix} + 1) << (32 - depth); }
    // Stored in `pages`.
    std::atomic<uint64_t>* cells() const {
      return static_cast<std::atomic<uint64_t>*>(pages.address);
    }
    uint32_t Position(uint32_t tag) const {
      return FastRange32(
          static_cast<uint32_t>(static_cast<uint64_t>(tag) << depth), capacity);
    }
    // Whether the leaf must split to take its reserved entries.
    bool Splits() const {
      return static_cast<uint64_t>(live) + reserved > limit &&
             depth < kMaxDepth;
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
  // Resizes the leaf to its entries and reserved entries.
  bool Rebuild(Leaf* leaf);
  bool Split(Leaf* leaf);
  // Makes room for the leaf's reserved entries and resets their number.
  // Requires: the leaf does not split. Returns false if out of memory.
  bool Fit(Leaf* leaf);
  // Makes room for count(depth, prefix) more entries in the leaf, splitting it
  // as often as necessary. Sets *deeper if it would have to split beyond depth
  // `deepest`. Returns false if out of memory.
  template <typename Count>
  bool Grow(Leaf* leaf, int deepest, const Count& count, bool* deeper);
  bool CreateFirstLeaf();

  EpochDomain* const epochs_;
  const uint32_t salt_;
  std::atomic<Directory*> directory_{nullptr};
  std::atomic<int64_t> bytes_{0};
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_LEAF_INDEX_H_
