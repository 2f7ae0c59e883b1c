// StringMap: a hash table from byte strings to int64 values.
//
//   buckets_  | 8 tags of 16 bits | 8 addresses, 48 bits |    one cache line
//   each records   [length][bytes][value] [length][bytes][value] ...
//
// Keys and their values are stored one after another in an arena, so there is
// no allocation per key, and a lookup touches one line and one record. Lengths
// and values are encoded in base 128. A key's line and tag are bits of its
// word, a keyed hash of its hash; a tag is odd if the lane is used (see
// bucket_array.h). Batches are hashed, then their lines and records are
// prefetched in groups.
//
// Concurrent reads are safe; writes need exclusive access.

#ifndef LODESTAR_TF_OPS_CORE_LOOKUP_STRING_MAP_H_
#define LODESTAR_TF_OPS_CORE_LOOKUP_STRING_MAP_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "tf_ops/core/base/keyed_hash.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/bucket_array.h"
#include "tf_ops/core/lookup/bucket_hash.h"
#include "tf_ops/core/memory/arena.h"

namespace lodestar {

class StringMap {
 public:
  using Key = std::string_view;

  static uint64_t Hash(Key key) { return Fingerprint64(key); }

  int64_t size() const { return live_; }
  int64_t bytes() const { return buckets_.bytes() + record_memory_bytes_; }

  // Size of a key and its value, without their share of a line.
  static int64_t RecordBytes(Key key, int64_t value) {
    return Base128Bytes(key.size()) + static_cast<int64_t>(key.size()) +
           Base128Bytes(ZigZag(value));
  }

  // Makes room for `count` keys in total and for new records of `record_bytes`
  // together. Returns ResourceExhausted if out of memory; the map is unchanged
  // then.
  Status Reserve(int64_t count, int64_t record_bytes);

  std::optional<int64_t> Find(Key key) const { return Find(key, Hash(key)); }
  // Requires: hash == Hash(key).
  std::optional<int64_t> Find(Key key, uint64_t hash) const {
    if (buckets_.empty()) return std::nullopt;
    const Found found = FindKey(key, WordOf(hash));
    if (found.record == nullptr) return std::nullopt;
    return ValueOf(found.record);
  }

  // Calls visit(i, hash, optional value) for the keys key(0) ... key(count -
  // 1), in order.
  template <typename KeyAt, typename Visit>
  void FindBatch(int64_t count, const KeyAt& key, const Visit& visit) const {
    ForEachWord(count, key,
                [&](int64_t i, uint64_t hash, uint64_t word, bool may_exist) {
                  const Found found =
                      may_exist ? FindKey(key(i), word) : Found{0, 0, nullptr};
                  visit(i, hash,
                        found.record == nullptr
                            ? std::optional<int64_t>()
                            : std::optional<int64_t>(ValueOf(found.record)));
                });
  }

  // Adds keys or changes their values; the last of equal keys wins. Returns
  // ResourceExhausted if out of memory; the map is unchanged then.
  template <typename KeyAt, typename ValueAt>
  Status Insert(int64_t count, const KeyAt& key, const ValueAt& value) {
    int64_t missing = 0;
    int64_t record_bytes = 0;
    FindBatch(count, key,
              [&](int64_t i, uint64_t, const std::optional<int64_t>& found) {
                missing += !found;
                // A new value may need a new record.
                if (found != value(i)) {
                  record_bytes += RecordBytes(key(i), value(i));
                }
              });
    LODESTAR_RETURN_IF_ERROR(Reserve(live_ + missing, record_bytes));
    ForEachWord(count, key, [&](int64_t i, uint64_t, uint64_t word, bool) {
      Assign(key(i), word, value(i));
    });
    return Status();
  }

  // Makes room for AddNew. Returns ResourceExhausted if out of memory; the map
  // is unchanged then.
  template <typename KeyAt, typename ValueAt>
  Status ReserveFor(int64_t count, const KeyAt& key, const ValueAt& value) {
    int64_t record_bytes = 0;
    for (int64_t i = 0; i < count; ++i) {
      record_bytes += RecordBytes(key(i), value(i));
    }
    return Reserve(live_ + count, record_bytes);
  }

  // Adds new keys. Stops at the first key that exists with another value and
  // returns its index, or -1 if there is no such key. Requires: ReserveFor for
  // the same keys.
  template <typename KeyAt, typename ValueAt>
  int64_t AddNew(int64_t count, const KeyAt& key, const ValueAt& value) {
    int64_t conflict = -1;
    ForEachWord(count, key, [&](int64_t i, uint64_t, uint64_t word, bool) {
      if (conflict >= 0) return;
      const Found found = FindKey(key(i), word);
      if (found.record == nullptr) {
        Append(found.bucket, word, WriteRecord(key(i), value(i)));
      } else if (ValueOf(found.record) != value(i)) {
        conflict = i;
      }
    });
    return conflict;
  }

  bool Remove(Key key);

  // Calls visit(key, value) for every entry, in no particular order.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const Bucket& bucket : buckets_) {
      for (int lane = 0; lane < kLanes && bucket.used(lane); ++lane) {
        const char* const record = bucket.record(lane);
        visit(KeyOf(record), ValueOf(record));
      }
    }
  }

 private:
  static constexpr int kLanes = 8;

  struct alignas(64) Bucket {
    static constexpr int kLanes = StringMap::kLanes;
    static constexpr int kMaxPerBucket = 6;  // 10.7 bytes per key

    uint16_t tags[kLanes];
    unsigned char addresses[kLanes][6];

    bool used(int lane) const { return tags[lane] != 0; }
    bool full() const { return used(kLanes - 1); }
    void Move(int lane, const Bucket& from, int other) {
      set(lane, from.tags[other], from.record(other));
    }
    void Clear(int lane) { set(lane, 0, nullptr); }
    char* record(int lane) const {
      // The two bytes before an address belong to the previous address or to
      // the tags.
      uint64_t word;
      std::memcpy(&word,
                  reinterpret_cast<const char*>(this) + sizeof(tags) +
                      lane * sizeof(addresses[0]) - 2,
                  sizeof(word));
      return reinterpret_cast<char*>(word >> 16);
    }
    void set(int lane, uint16_t tag, const char* record) {
      const uint64_t address = reinterpret_cast<uintptr_t>(record);
      tags[lane] = tag;
      std::memcpy(addresses[lane], &address, 6);
    }
    // Returns bit 15 of each lane of tags[4 * half ...] that equals `tag`, and
    // possibly of a lane above a matching one.
    uint64_t Matches(int half, uint16_t tag) const {
      constexpr uint64_t kOnes = 0x0001000100010001ULL;
      uint64_t lanes;
      std::memcpy(&lanes, tags + 4 * half, 8);
      lanes ^= tag * kOnes;
      return (lanes - kOnes) & ~lanes & (kOnes << 15);
    }
  };

  // The record of a key or, if it is missing, the line to add it to.
  struct Found {
    uint64_t bucket;
    int lane;
    char* record;
  };

  uint64_t WordOf(uint64_t hash) const { return MultiplyHash(hash, hash_key_); }
  static uint16_t TagOf(uint64_t word) {
    return static_cast<uint16_t>(word >> 16) | 1;
  }
  uint64_t Home(uint64_t word) const { return buckets_.Home(word); }

  static int64_t Base128Bytes(uint64_t x) {
    return (70 - __builtin_clzll(x | 1)) / 7;
  }
  // Maps integers with small absolute values to small unsigned ones.
  static uint64_t ZigZag(int64_t x) {
    return (static_cast<uint64_t>(x) << 1) ^ static_cast<uint64_t>(x >> 63);
  }
  static const char* ReadBase128(const char* in, uint64_t* x) {
    *x = static_cast<unsigned char>(*in++);
    if (*x < 128) return in;
    *x &= 127;
    for (int shift = 7;; shift += 7) {
      const uint64_t byte = static_cast<unsigned char>(*in++);
      *x |= (byte & 127) << shift;
      if (byte < 128) return in;
    }
  }
  static Key KeyOf(const char* record) {
    uint64_t length;
    const char* const bytes = ReadBase128(record, &length);
    return Key(bytes, length);
  }
  static int64_t ValueOf(const char* record) {
    const Key key = KeyOf(record);
    uint64_t zigzag;
    ReadBase128(key.data() + key.size(), &zigzag);
    return static_cast<int64_t>(zigzag >> 1) ^
           -static_cast<int64_t>(zigzag & 1);
  }
  static uint64_t Load64(const char* p) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    return word;
  }
  // Most keys have 8 to 32 bytes: two or four overlapping words and no call.
  static bool Same(Key a, Key b) {
    const size_t n = a.size();
    if (n != b.size()) return false;
    if (n < 8 || n > 32) return std::memcmp(a.data(), b.data(), n) == 0;
    const auto differ = [&](size_t at) {
      return Load64(a.data() + at) ^ Load64(b.data() + at);
    };
    uint64_t difference = differ(0) | differ(n - 8);
    if (n > 16) difference |= differ(8) | differ(n - 16);
    return difference == 0;
  }

  // Requires: there are buckets.
  Found FindKey(Key key, uint64_t word) const {
    const uint16_t tag = TagOf(word);
    for (uint64_t b = Home(word);; b = buckets_.After(b)) {
      const Bucket& bucket = *buckets_.at(b);
      for (int half = 0; half < 2; ++half) {
        for (uint64_t match = bucket.Matches(half, tag); match != 0;
             match &= match - 1) {
          const int lane = 4 * half + (__builtin_ctzll(match) >> 4);
          if (bucket.tags[lane] != tag) continue;
          char* const record = bucket.record(lane);
          if (Same(KeyOf(record), key)) return {b, lane, record};
        }
      }
      if (!bucket.full()) return {b, 0, nullptr};
    }
  }

  // Calls visit(i, hash, word, may exist) for every key, with its line and
  // record prefetched.
  template <typename KeyAt, typename Visit>
  void ForEachWord(int64_t count, const KeyAt& key, const Visit& visit) const {
    constexpr int64_t kGroup = 32;
    uint64_t hashes[kGroup];
    uint64_t words[kGroup];
    bool may_exist[kGroup] = {};
    for (int64_t begin = 0; begin < count; begin += kGroup) {
      const int64_t n = std::min(kGroup, count - begin);
      for (int64_t i = 0; i < n; ++i) {
        hashes[i] = Hash(key(begin + i));
        words[i] = WordOf(hashes[i]);
        __builtin_prefetch(buckets_.at(Home(words[i])));
      }
      if (!buckets_.empty()) {
        for (int64_t i = 0; i < n; ++i) {
          // Not in a function of its own: g++ would remove the call because it
          // has no side effect.
          const char* const next = NextLine(words[i]);
          may_exist[i] = next != reinterpret_cast<const char*>(
                                     buckets_.at(Home(words[i])));
          __builtin_prefetch(next);
          __builtin_prefetch(next + 31);
        }
      }
      for (int64_t i = 0; i < n; ++i) {
        visit(begin + i, hashes[i], words[i], may_exist[i]);
      }
    }
  }
  // Returns where a lookup continues after the word's line: at the first record
  // there with the same tag, or at the next line if this one is full.
  const char* NextLine(uint64_t word) const {
    const uint64_t home = Home(word);
    const Bucket& bucket = *buckets_.at(home);
    const uint64_t low = bucket.Matches(0, TagOf(word));
    const uint64_t match = low != 0 ? low : bucket.Matches(1, TagOf(word));
    const int half = low != 0 ? 0 : 4;
    if (match == 0) {
      return reinterpret_cast<const char*>(
          buckets_.at(bucket.full() ? buckets_.After(home) : home));
    }
    return bucket.record(half + (__builtin_ctzll(match) >> 4));
  }

  // Requires: room for the record.
  char* WriteRecord(Key key, int64_t value);
  // Adds a new key's record to a line. Requires: the line has a free lane.
  void Append(uint64_t b, uint64_t word, char* record);
  void Assign(Key key, uint64_t word, int64_t value);
  // Returns ResourceExhausted if out of memory; the map is unchanged then.
  Status Rebuild(int64_t capacity, int64_t record_bytes);
  Status AddRecordMemory(int64_t bytes);

  uint64_t hash_key_ = ProcessHashKey();
  BucketArray<Bucket> buckets_;
  int64_t live_ = 0;

  std::unique_ptr<Arena> record_memory_;
  char* next_ = nullptr;  // unused part of record_memory_
  int64_t left_ = 0;      // size of the unused part
  int64_t record_memory_bytes_ = 0;
  int64_t dead_bytes_ = 0;  // of removed or replaced records
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_LOOKUP_STRING_MAP_H_
