// IntegerMap: a hash table from int64 keys to int64 values with open addressing
// by cache lines.
//
//   buckets_  | key value | key value | key value | free |   one line each
//
// A line holds four entries (see bucket_array.h). A free entry has the key
// kFree; that key itself is stored outside of the array. Batches are hashed and
// prefetched before they are probed.
//
// Concurrent reads are safe; writes need exclusive access.

#ifndef LODESTAR_TF_OPS_CORE_LOOKUP_INTEGER_MAP_H_
#define LODESTAR_TF_OPS_CORE_LOOKUP_INTEGER_MAP_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tf_ops/core/base/keyed_hash.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/bucket_array.h"

namespace lodestar {

class IntegerMap {
 public:
  using Key = int64_t;

  int64_t size() const { return live_ + (free_key_value_ ? 1 : 0); }
  int64_t bytes() const { return buckets_.bytes(); }

  // Makes room for `count` keys in total. Returns ResourceExhausted if out of
  // memory; the map is unchanged then.
  Status Reserve(int64_t count);

  // Returns the value of a key, or nullptr.
  const int64_t* Find(Key key) const {
    if (buckets_.empty()) return FindFreeKey(key);
    return FindFrom(Home(key), key);
  }

  // Calls visit(i, unspecified, value or nullptr) for the keys key(0) ...
  // key(count - 1), in order.
  template <typename KeyAt, typename Visit>
  void FindBatch(int64_t count, const KeyAt& key, const Visit& visit) const {
    ForEachHome(count, key, [&](int64_t i, uint64_t home) {
      visit(i, home,
            buckets_.empty() ? FindFreeKey(key(i)) : FindFrom(home, key(i)));
    });
  }

  // Calls visit(i, &value) for the keys, in order. A missing key is added with
  // the value 0 first. Requires: Reserve for all of them.
  template <typename KeyAt, typename Visit>
  void FindOrAddBatch(int64_t count, const KeyAt& key, const Visit& visit) {
    ForEachHome(count, key, [&](int64_t i, uint64_t home) {
      visit(i, FindOrAdd(home, key(i), 0));
    });
  }

  // Adds keys or changes their values; the last of equal keys wins. Returns
  // ResourceExhausted if out of memory; the map is unchanged then.
  template <typename KeyAt, typename ValueAt>
  Status Insert(int64_t count, const KeyAt& key, const ValueAt& value) {
    int64_t missing = 0;
    FindBatch(count, key, [&](int64_t, uint64_t, const int64_t* found) {
      missing += found == nullptr;
    });
    LODESTAR_RETURN_IF_ERROR(Reserve(size() + missing));
    FindOrAddBatch(count, key,
                   [&](int64_t i, int64_t* found) { *found = value(i); });
    return Status();
  }

  // Makes room for AddNew. Returns ResourceExhausted if out of memory; the map
  // is unchanged then.
  template <typename KeyAt, typename ValueAt>
  Status ReserveFor(int64_t count, const KeyAt&, const ValueAt&) {
    return Reserve(size() + count);
  }

  // Adds new keys. Stops at the first key that exists with another value and
  // returns its index, or -1 if there is no such key. Requires: ReserveFor for
  // the same keys.
  template <typename KeyAt, typename ValueAt>
  int64_t AddNew(int64_t count, const KeyAt& key, const ValueAt& value) {
    int64_t conflict = -1;
    ForEachHome(count, key, [&](int64_t i, uint64_t home) {
      if (conflict < 0 && *FindOrAdd(home, key(i), value(i)) != value(i)) {
        conflict = i;
      }
    });
    return conflict;
  }

  bool Remove(Key key);

  // Calls visit(key, value) for every entry, in no particular order.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    if (free_key_value_) visit(kFree, *free_key_value_);
    for (const Bucket& bucket : buckets_) {
      for (const Entry& entry : bucket.entries) {
        if (entry.key != kFree) visit(entry.key, entry.value);
      }
    }
  }

 private:
  // New pages are zero, so a new array needs no initialization.
  static constexpr Key kFree = 0;

  struct Entry {
    Key key;
    int64_t value;
  };
  struct alignas(64) Bucket {
    static constexpr int kLanes = 4;
    // 32 bytes per key, and six of seven failed searches end in their first
    // line.
    static constexpr int kMaxPerBucket = 2;

    bool used(int lane) const { return entries[lane].key != kFree; }
    bool full() const { return used(kLanes - 1); }
    void Move(int lane, const Bucket& from, int other) {
      entries[lane] = from.entries[other];
    }
    void Clear(int lane) { entries[lane] = {kFree, 0}; }

    Entry entries[kLanes];
  };

  uint64_t Home(Key key) const {
    return buckets_.Home(KeyedHash(static_cast<uint64_t>(key), hash_key_));
  }
  const int64_t* FindFreeKey(Key key) const {
    return key == kFree && free_key_value_ ? &*free_key_value_ : nullptr;
  }

  // Requires: there are buckets.
  const int64_t* FindFrom(uint64_t b, Key key) const {
    for (;; b = buckets_.After(b)) {
      const Entry* const e = buckets_.at(b)->entries;
      // Branchless, because which lane matches cannot be predicted.
      const int lane =
          (e[1].key == key) + 2 * (e[2].key == key) + 3 * (e[3].key == key);
      // More than one lane can match only if the key is kFree.
      if (__builtin_expect(key == kFree, 0)) return FindFreeKey(key);
      if (e[lane].key == key) return &e[lane].value;
      if (!buckets_.at(b)->full()) return nullptr;
    }
  }

  // Returns the key's value; adds the key with `value` if it is missing.
  // Requires: room for it.
  int64_t* FindOrAdd(uint64_t b, Key key, int64_t value) {
    if (key == kFree) {
      if (!free_key_value_) free_key_value_ = value;
      return &*free_key_value_;
    }
    for (;; b = buckets_.After(b)) {
      for (Entry& entry : buckets_.at(b)->entries) {
        if (entry.key == kFree) {
          entry = {key, value};
          ++live_;
        }
        if (entry.key == key) return &entry.value;
      }
    }
  }

  // Calls visit(i, home) for every key, with its line prefetched. Homes are 0
  // while there are no lines.
  template <typename KeyAt, typename Visit>
  void ForEachHome(int64_t count, const KeyAt& key, const Visit& visit) const {
    constexpr int64_t kIdsAtOnce = 256;
    constexpr int64_t kAhead = 24;
    uint64_t homes[kIdsAtOnce];
    for (int64_t begin = 0; begin < count; begin += kIdsAtOnce) {
      const int64_t n = std::min(kIdsAtOnce, count - begin);
      for (int64_t i = 0; i < n; ++i) homes[i] = Home(key(begin + i));
      const int64_t ahead = std::min(kAhead, n);
      for (int64_t i = 0; i < ahead; ++i) {
        __builtin_prefetch(buckets_.at(homes[i]));
      }
      for (int64_t i = 0; i < n; ++i) {
        if (i + kAhead < n) {
          __builtin_prefetch(buckets_.at(homes[i + kAhead]));
        }
        visit(begin + i, homes[i]);
      }
    }
  }

  uint64_t hash_key_ = ProcessHashKey();
  BucketArray<Bucket> buckets_;
  int64_t live_ = 0;  // without kFree
  std::optional<int64_t> free_key_value_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_LOOKUP_INTEGER_MAP_H_
