// IntegerMap: int64 keys -> int64 values, open addressing.
//
//   entries_  | key value | key value | free | key value | ...   power of two
//
// A free entry holds kFree as its key; the key kFree itself, an ordinary key to
// callers, lies beside the array. Probes are linear, load is at most 1/2, and
// a batch is hashed and prefetched in groups before it is probed.
// Not thread-safe for writes; reads may run together.

#ifndef LODESTAR_TF_OPS_CORE_INTEGER_MAP_H_
#define LODESTAR_TF_OPS_CORE_INTEGER_MAP_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "tf_ops/core/hash.h"

namespace lodestar {

class IntegerMap {
 public:
  using Key = int64_t;

  int64_t size() const { return live_ + (free_key_value_ ? 1 : 0); }

  // Room for `count` keys. May throw std::bad_alloc; the map is as before.
  void Reserve(int64_t count) {
    int64_t capacity = 16;
    while (capacity < count * 2) capacity *= 2;
    if (capacity > static_cast<int64_t>(entries_.size())) Rehash(capacity);
  }

  // The value of a key, or nullptr.
  const int64_t* Find(Key key) const {
    if (key == kFree) return free_key_value_ ? &*free_key_value_ : nullptr;
    if (entries_.empty()) return nullptr;
    const Entry& entry = entries_[PlaceOf(key)];
    return entry.key == key ? &entry.value : nullptr;
  }

  // visit(i, value or nullptr) for the keys key(0) ... key(count - 1).
  template <typename KeyAt, typename Visit>
  void FindBatch(int64_t count, const KeyAt& key, const Visit& visit) const {
    constexpr int64_t kGroup = 32;
    for (int64_t begin = 0; begin < count; begin += kGroup) {
      const int64_t end = std::min(count, begin + kGroup);
      if (!entries_.empty()) {
        for (int64_t i = begin; i < end; ++i) {
          __builtin_prefetch(
              &entries_[Mix64(static_cast<uint64_t>(key(i))) & mask_]);
        }
      }
      for (int64_t i = begin; i < end; ++i) visit(i, Find(key(i)));
    }
  }

  // Adds the key, or gives it another value. May throw std::bad_alloc; the map
  // is as before.
  void Assign(Key key, int64_t value) {
    if (key == kFree) {
      free_key_value_ = value;
      return;
    }
    Reserve(live_ + 1);
    Entry& entry = entries_[PlaceOf(key)];
    if (entry.key != key) ++live_;
    entry = {key, value};
  }

  bool Remove(Key key) {
    if (key == kFree) {
      const bool there = free_key_value_.has_value();
      free_key_value_.reset();
      return there;
    }
    if (entries_.empty()) return false;
    uint64_t hole = PlaceOf(key);
    if (entries_[hole].key != key) return false;
    // Entries that probed past the hole move into it.
    for (uint64_t i = (hole + 1) & mask_; entries_[i].key != kFree;
         i = (i + 1) & mask_) {
      const uint64_t home =
          Mix64(static_cast<uint64_t>(entries_[i].key)) & mask_;
      if (((i - home) & mask_) >= ((i - hole) & mask_)) {
        entries_[hole] = entries_[i];
        hole = i;
      }
    }
    entries_[hole].key = kFree;
    --live_;
    return true;
  }

  // visit(key, value) for every entry, in no order.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    if (free_key_value_) visit(kFree, *free_key_value_);
    for (const Entry& entry : entries_) {
      if (entry.key != kFree) visit(entry.key, entry.value);
    }
  }

  int64_t bytes() const { return entries_.size() * sizeof(Entry); }

 private:
  static constexpr Key kFree = std::numeric_limits<int64_t>::min();
  struct Entry {
    Key key;
    int64_t value;
  };

  // Where the key is, or would go.
  uint64_t PlaceOf(Key key) const {
    uint64_t i = Mix64(static_cast<uint64_t>(key)) & mask_;
    while (entries_[i].key != key && entries_[i].key != kFree) {
      i = (i + 1) & mask_;
    }
    return i;
  }

  void Rehash(int64_t capacity) {
    std::vector<Entry> grown(capacity, Entry{kFree, 0});
    grown.swap(entries_);
    mask_ = capacity - 1;
    for (const Entry& entry : grown) {
      if (entry.key != kFree) entries_[PlaceOf(entry.key)] = entry;
    }
  }

  std::vector<Entry> entries_;
  uint64_t mask_ = 0;
  int64_t live_ = 0;
  std::optional<int64_t> free_key_value_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_INTEGER_MAP_H_
