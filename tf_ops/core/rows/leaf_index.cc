#include "tf_ops/core/rows/leaf_index.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <numeric>
#include <vector>

namespace lodestar {
namespace {

// Small enough that rehashing a few leaves does not stall a lookup.
constexpr uint32_t kMaxLeafEntries = 16384;

// A new leaf is 5/8 full and grows at 3/4.
uint64_t CapacityFor(uint64_t entries) { return entries * 8 / 5 + 8; }

Status OutOfMemory(int64_t entries) {
  return ResourceExhausted("out of memory for ", entries,
                           " new ids in the index.");
}

}  // namespace

LeafIndex::~LeafIndex() {
  Directory* directory = directory_.load();
  if (directory == nullptr) return;
  const Leaf* last = nullptr;
  for (uint32_t i = 0; i < directory->size(); ++i) {
    Leaf* leaf = directory->leaves()[i].load();
    if (leaf != last) EpochDomain::Retirable::Free(leaf);
    last = leaf;  // adjacent entries may share a leaf
  }
  EpochDomain::Retirable::Free(directory);
}

LeafIndex::Leaf* LeafIndex::NewLeaf(int depth, uint32_t prefix,
                                    uint64_t entries) {
  void* memory = std::malloc(sizeof(Leaf));
  if (memory == nullptr) return nullptr;
  Leaf* leaf = new (memory) Leaf();
  leaf->pages = AllocatePages(CapacityFor(entries) * sizeof(uint64_t));
  if (leaf->pages.address == nullptr) {
    std::free(leaf);
    return nullptr;
  }
  const uint64_t capacity = leaf->pages.bytes / sizeof(uint64_t);
  leaf->capacity = static_cast<uint32_t>(capacity);
  leaf->depth = depth;
  leaf->prefix = prefix;
  const uint64_t word =
      Mix64(Mix64((static_cast<uint64_t>(depth) << 32) | prefix) + salt_);
  leaf->limit = kMaxLeafEntries / 2 +
                FastRange32(static_cast<uint32_t>(word), kMaxLeafEntries / 2);
  std::atomic<uint64_t>* cells = leaf->cells();
  for (uint64_t i = 0; i < capacity; ++i) {
    new (cells + i) std::atomic<uint64_t>(kEmpty);
  }
  bytes_.fetch_add(sizeof(Leaf) + leaf->pages.bytes, std::memory_order_relaxed);
  return leaf;
}

LeafIndex::Directory* LeafIndex::NewDirectory(int depth) {
  const uint64_t size = 1ull << depth;
  const size_t bytes = sizeof(Directory) + size * sizeof(std::atomic<Leaf*>);
  void* memory = std::malloc(bytes);
  if (memory == nullptr) return nullptr;
  Directory* directory = new (memory) Directory();
  directory->depth = depth;
  for (uint64_t i = 0; i < size; ++i) {
    new (directory->leaves() + i) std::atomic<Leaf*>(nullptr);
  }
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return directory;
}

void LeafIndex::Uncount(const Leaf* leaf) {
  bytes_.fetch_sub(sizeof(Leaf) + leaf->pages.bytes, std::memory_order_relaxed);
}

void LeafIndex::Uncount(const Directory* directory) {
  bytes_.fetch_sub(
      sizeof(Directory) + directory->size() * sizeof(std::atomic<Leaf*>),
      std::memory_order_relaxed);
}

void LeafIndex::Retire(Leaf* leaf) {
  Uncount(leaf);
  epochs_->Retire(leaf);
}

void LeafIndex::Retire(Directory* directory) {
  Uncount(directory);
  epochs_->Retire(directory);
}

// Points every directory entry of the leaf's prefix at the leaf.
void LeafIndex::Publish(Leaf* leaf) {
  Directory* directory = directory_.load(std::memory_order_relaxed);
  const uint32_t count = 1u << (directory->depth - leaf->depth);
  const uint32_t first = leaf->prefix * count;
  for (uint32_t i = first; i < first + count; ++i) {
    directory->leaves()[i].store(leaf, std::memory_order_seq_cst);
  }
}

void LeafIndex::Put(Leaf* leaf, uint64_t cell) {
  uint32_t position = leaf->Position(static_cast<uint32_t>(cell >> 32));
  std::atomic<uint64_t>* cells = leaf->cells();
  while (cells[position].load(std::memory_order_relaxed) != kEmpty) {
    if (++position == leaf->capacity) position = 0;
  }
  cells[position].store(cell, std::memory_order_release);
  ++leaf->used;
  ++leaf->live;
}

bool LeafIndex::Rebuild(Leaf* leaf) {
  Leaf* grown = NewLeaf(leaf->depth, leaf->prefix,
                        static_cast<uint64_t>(leaf->live) + leaf->reserved);
  if (grown == nullptr) return false;
  for (uint32_t i = 0; i < leaf->capacity; ++i) {
    const uint64_t cell = leaf->cells()[i].load(std::memory_order_relaxed);
    if (cell != kEmpty && cell != kRemoved) Put(grown, cell);
  }
  Publish(grown);
  Retire(leaf);
  return true;
}

bool LeafIndex::Split(Leaf* leaf) {
  Directory* directory = directory_.load(std::memory_order_relaxed);
  if (leaf->depth == directory->depth) {
    Directory* doubled = NewDirectory(directory->depth + 1);
    if (doubled == nullptr) return false;
    for (uint32_t i = 0; i < doubled->size(); ++i) {
      doubled->leaves()[i].store(directory->leaves()[i / 2].load());
    }
    directory_.store(doubled, std::memory_order_seq_cst);
    Retire(directory);
  }
  const int depth = leaf->depth + 1;
  uint64_t counts[2] = {0, 0};
  for (uint32_t i = 0; i < leaf->capacity; ++i) {
    const uint64_t cell = leaf->cells()[i].load(std::memory_order_relaxed);
    if (cell == kEmpty || cell == kRemoved) continue;
    ++counts[(cell >> (64 - depth)) & 1];
  }
  Leaf* halves[2] = {nullptr, nullptr};
  for (int half = 0; half < 2; ++half) {
    halves[half] = NewLeaf(depth, leaf->prefix * 2 + half, counts[half]);
    if (halves[half] == nullptr) {
      if (half == 1) {
        Uncount(halves[0]);
        EpochDomain::Retirable::Free(halves[0]);
      }
      return false;
    }
  }
  for (uint32_t i = 0; i < leaf->capacity; ++i) {
    const uint64_t cell = leaf->cells()[i].load(std::memory_order_relaxed);
    if (cell == kEmpty || cell == kRemoved) continue;
    Put(halves[(cell >> (64 - depth)) & 1], cell);
  }
  Publish(halves[0]);
  Publish(halves[1]);
  Retire(leaf);
  return true;
}

bool LeafIndex::Fit(Leaf* leaf) {
  if (!leaf->Fits()) {
    if (Rebuild(leaf)) return true;
    leaf->reserved = 0;
    return false;
  }
  leaf->reserved = 0;
  return true;
}

template <typename Count>
bool LeafIndex::Grow(Leaf* leaf, int deepest, const Count& count,
                     bool* deeper) {
  leaf->reserved = static_cast<uint32_t>(count(leaf->depth, leaf->prefix));
  if (!leaf->Splits()) return Fit(leaf);
  leaf->reserved = 0;
  if (leaf->depth == deepest) {
    *deeper = true;
    return true;
  }
  const uint64_t begin = uint64_t{leaf->prefix} << (32 - leaf->depth);
  const uint64_t middle = (begin + leaf->end()) / 2;
  if (!Split(leaf)) return false;
  for (const uint64_t tag : {begin, middle}) {
    if (!Grow(LeafOf(static_cast<uint32_t>(tag)), deepest, count, deeper)) {
      return false;
    }
  }
  return true;
}

bool LeafIndex::CreateFirstLeaf() {
  if (directory_.load(std::memory_order_relaxed) != nullptr) return true;
  Directory* directory = NewDirectory(0);
  if (directory == nullptr) return false;
  Leaf* leaf = NewLeaf(0, 0, 0);
  if (leaf == nullptr) {
    Uncount(directory);
    EpochDomain::Retirable::Free(directory);
    return false;
  }
  directory->leaves()[0].store(leaf);
  directory_.store(directory, std::memory_order_seq_cst);
  return true;
}

Status LeafIndex::Reserve(Span<const uint32_t> tags) try {
  if (tags.empty()) return Status();
  bool ok = CreateFirstLeaf();
  for (bool deeper = true; ok && deeper;) {
    const Directory* directory = directory_.load(std::memory_order_relaxed);
    std::vector<Leaf*> touched;
    touched.reserve(std::min<int64_t>(tags.size(), directory->size()));
    for (uint32_t tag : tags) {
      Leaf* leaf = directory->leaf(tag).load(std::memory_order_relaxed);
      if (leaf->reserved++ == 0) touched.push_back(leaf);
    }
    size_t splits = 0;
    int depth = 0;
    uint64_t most = 0;
    for (Leaf* leaf : touched) {
      if (ok && !leaf->Splits()) {
        ok = Fit(leaf);
        continue;
      }
      depth = std::max(depth, leaf->depth);
      most = std::max(most, uint64_t{leaf->live} + leaf->reserved);
      leaf->reserved = 0;
      touched[splits++] = leaf;
    }
    deeper = false;
    if (!ok || splits == 0) break;
    // Numbers of new tags by their first bits. With three bits more than evenly
    // distributed tags need, no leaf has to split deeper.
    const uint64_t parts = most / (kMaxLeafEntries / 2);
    const int deepest =
        std::min(kMaxDepth, depth + 64 - __builtin_clzll(parts) + 2);
    std::vector<uint32_t> counts(size_t{1} << deepest);
    for (uint32_t tag : tags) ++counts[tag >> (32 - deepest)];
    const auto count = [&](int bits, uint32_t prefix) {
      const auto begin = counts.begin() + (size_t{prefix} << (deepest - bits));
      return std::accumulate(begin, begin + (1 << (deepest - bits)),
                             uint64_t{0});
    };
    for (size_t i = 0; ok && i < splits; ++i) {
      ok = Grow(touched[i], deepest, count, &deeper);
    }
  }
  return ok ? Status() : OutOfMemory(tags.size());
} catch (const std::bad_alloc&) {
  return OutOfMemory(tags.size());
}

Status LeafIndex::ReserveEvenly(int64_t entries) {
  if (entries <= 0) return Status();
  // Entry i has tag i * 2^32 / number.
  const uint64_t number = std::min<int64_t>(entries, kMaxRows);
  const auto below = [=](uint64_t tag) {
    return (tag * number + 0xffffffffu) >> 32;
  };
  const auto count = [&](int bits, uint64_t prefix) {
    return below((prefix + 1) << (32 - bits)) - below(prefix << (32 - bits));
  };
  bool ok = CreateFirstLeaf();
  bool deeper = false;
  for (uint64_t tag = 0; ok && tag >> 32 == 0;) {
    Leaf* const leaf = LeafOf(static_cast<uint32_t>(tag));
    tag = leaf->end();
    ok = Grow(leaf, kMaxDepth, count, &deeper);
  }
  return ok ? Status() : OutOfMemory(entries);
}

void LeafIndex::Insert(uint32_t tag, uint32_t row) {
  Put(LeafOf(tag), (static_cast<uint64_t>(tag) << 32) | row);
}

std::atomic<uint64_t>* LeafIndex::CellOf(Leaf* leaf, uint32_t tag,
                                         uint32_t row) {
  const uint64_t wanted = (static_cast<uint64_t>(tag) << 32) | row;
  std::atomic<uint64_t>* cells = leaf->cells();
  uint32_t position = leaf->Position(tag);
  while (cells[position].load(std::memory_order_relaxed) != wanted) {
    if (++position == leaf->capacity) position = 0;
  }
  return cells + position;
}

void LeafIndex::Remove(uint32_t tag, uint32_t row) {
  Leaf* leaf = LeafOf(tag);
  CellOf(leaf, tag, row)->store(kRemoved, std::memory_order_release);
  --leaf->live;
}

void LeafIndex::Move(uint32_t tag, uint32_t from, uint32_t to) {
  CellOf(LeafOf(tag), tag, from)
      ->store((static_cast<uint64_t>(tag) << 32) | to,
              std::memory_order_release);
}

Status LeafIndex::CompactLeaf(uint32_t* tag) {
  if (directory_.load(std::memory_order_relaxed) == nullptr) {
    *tag = 0;
    return Status();
  }
  Leaf* leaf = LeafOf(*tag);
  const uint64_t next = leaf->end();
  // Saving an eighth or less is not worth a rebuild.
  const uint64_t wanted = CapacityFor(leaf->live) * sizeof(uint64_t);
  if (wanted * 8 < leaf->pages.bytes * 7) {
    if (!Rebuild(leaf)) {
      return ResourceExhausted("out of memory for a smaller index leaf of ",
                               leaf->live, " ids.");
    }
  }
  *tag = static_cast<uint32_t>(next);
  return Status();
}

void LeafIndex::Replace(LeafIndex* fresh) {
  Directory* old = directory_.load();
  directory_.store(fresh->directory_.exchange(nullptr),
                   std::memory_order_seq_cst);
  bytes_.store(fresh->bytes_.exchange(0));
  if (old == nullptr) return;
  Leaf* last = nullptr;
  for (uint32_t i = 0; i < old->size(); ++i) {
    Leaf* leaf = old->leaves()[i].load();
    if (leaf != last) epochs_->Retire(leaf);
    last = leaf;
  }
  epochs_->Retire(old);
}

}  // namespace lodestar
