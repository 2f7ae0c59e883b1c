// StringMap: byte strings -> int64 values.
//
//   slots_   | tag:16 place:48 | free | ...      open addressing, load <= 3/4,
//                                                of any size
//   chunks_  [length][bytes][value] [length][bytes][value] ...   1 MB each
//
// Keys lie in chunks, one after another, with their values behind them, so a
// key costs no allocation and a look-up touches a slot and a record. Lengths
// and values are in base 128. A batch is hashed, then its slots, then its
// records are prefetched, in groups.
// Not thread-safe for writes; reads may run together.

#ifndef LODESTAR_TF_OPS_CORE_STRING_MAP_H_
#define LODESTAR_TF_OPS_CORE_STRING_MAP_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tf_ops/core/bucket_hash.h"

namespace lodestar {

class StringMap {
 public:
  using Key = std::string_view;

  static uint64_t Hash(Key key) { return Fingerprint64(key); }

  int64_t size() const { return live_; }

  // Room for `count` keys' slots. May throw std::bad_alloc; the map is as
  // before.
  void Reserve(int64_t count);

  std::optional<int64_t> Find(Key key) const { return Find(key, Hash(key)); }
  // REQUIRES: hash == Hash(key).
  std::optional<int64_t> Find(Key key, uint64_t hash) const;

  // visit(i, hash, value or nothing) for the keys key(0) ... key(count - 1).
  template <typename KeyAt, typename Visit>
  void FindBatch(int64_t count, const KeyAt& key, const Visit& visit) const {
    constexpr int64_t kGroup = 16;
    uint64_t hashes[kGroup];
    for (int64_t begin = 0; begin < count; begin += kGroup) {
      const int64_t group = std::min(kGroup, count - begin);
      for (int64_t i = 0; i < group; ++i) {
        hashes[i] = Hash(key(begin + i));
        PrefetchSlot(hashes[i]);
      }
      for (int64_t i = 0; i < group; ++i) PrefetchRecord(hashes[i]);
      for (int64_t i = 0; i < group; ++i) {
        visit(begin + i, hashes[i], Find(key(begin + i), hashes[i]));
      }
    }
  }

  // Adds the key, or gives it another value. May throw std::bad_alloc; the map
  // is as before.
  void Assign(Key key, int64_t value);

  bool Remove(Key key);

  // visit(key, value) for every entry, in no order.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (uint64_t slot : slots_) {
      if (slot == kFree || slot == kRemoved) continue;
      const Record record = Read(slot);
      visit(record.key, record.value);
    }
  }

  int64_t bytes() const {
    return slots_.size() * sizeof(uint64_t) + chunk_bytes_;
  }

 private:
  static constexpr uint64_t kFree = 0xffffffffffffffffULL;
  static constexpr uint64_t kRemoved = 0xfffffffffffffffeULL;
  static constexpr int kPlaceBits = 48;
  static constexpr int kChunkBits = 20;

  struct Record {
    Key key;
    int64_t value;
  };

  // kRemoved and kFree have a place that no record has.
  static uint64_t MakeSlot(uint64_t hash, uint64_t place) {
    return (hash >> kPlaceBits << kPlaceBits) | place;
  }
  const char* RecordAt(uint64_t slot) const {
    const uint64_t place = slot & ((uint64_t{1} << kPlaceBits) - 1);
    return chunks_[place >> kChunkBits].get() +
           (place & ((uint64_t{1} << kChunkBits) - 1));
  }
  Record Read(uint64_t slot) const;
  // Scales the 48 bits that the tag leaves to the number of slots.
  static uint64_t HomeOf(uint64_t hash, uint64_t capacity) {
    const uint64_t low = hash << (64 - kPlaceBits) >> (64 - kPlaceBits);
    return static_cast<uint64_t>(
        (static_cast<unsigned __int128>(low) * capacity) >> kPlaceBits);
  }
  uint64_t Home(uint64_t hash) const { return HomeOf(hash, slots_.size()); }
  uint64_t After(uint64_t i) const { return ++i == slots_.size() ? 0 : i; }
  void PrefetchSlot(uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[Home(hash)]);
  }
  void PrefetchRecord(uint64_t hash) const {
    if (slots_.empty()) return;
    const uint64_t slot = slots_[Home(hash)];
    if (slot != kFree && slot != kRemoved) __builtin_prefetch(RecordAt(slot));
  }
  // The index of the key's slot, or -1; `value` if it is there.
  int64_t FindSlot(Key key, uint64_t hash, int64_t* value) const;
  uint64_t Append(Key key, int64_t value);
  void Rehash(int64_t capacity);

  std::vector<uint64_t> slots_;
  int64_t live_ = 0;
  int64_t used_ = 0;  // live and removed
  std::vector<std::unique_ptr<char[]>> chunks_;
  int64_t chunk_left_ = 0;
  uint64_t next_place_ = 0;
  int64_t chunk_bytes_ = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_STRING_MAP_H_
