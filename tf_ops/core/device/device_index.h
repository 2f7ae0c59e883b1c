// DeviceIndex: a hash table from int64 keys to 64-bit values in device memory,
// with open addressing in buckets of 32 cells. Most searches read one 32-byte
// sector of tags and one entry; docs/internals/kernels.md describes the layout.
// Every int64 is a valid key, and every value except kNoValue.
//
// Threads may insert concurrently with each other, and so may threads that
// search and threads that remove, but different kinds of access must not
// overlap.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_INDEX_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_INDEX_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/keyed_hash.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_memory.h"

namespace lodestar {

struct alignas(16) IndexEntry {
  int64_t key;
  int64_t value;
};

// Cells per bucket, and 32-bit words of their tags.
constexpr int kBucket = 32;
constexpr int kBucketWords = kBucket / 4;

struct alignas(16) TagWords {
  uint32_t word[4];
};

constexpr uint32_t kEmptyTag = 0;
constexpr uint32_t kRemovedTag = 1;
constexpr uint32_t kFirstTag = 2;
// Value of a cell that is free, or taken but not filled yet. Entries must
// therefore be initialized to bytes of 0xff.
constexpr int64_t kNoValue = -1;

// Returns one bit for each of the four bytes of `word` that equals `tag`.
__device__ inline uint32_t MatchTag(uint32_t word, uint32_t tag) {
  const uint32_t x = word ^ (tag * 0x01010101u);
  const uint32_t equal = ~(((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) & 0x80808080u;
  // Gathers the four bits; no two partial products share a bit.
  return ((equal >> 7) * 0x10204080u) >> 28;
}

struct DeviceIndex {
  uint32_t* tags = nullptr;       // [buckets, kBucketWords]
  IndexEntry* entries = nullptr;  // [buckets, kBucket]
  uint32_t bucket_mask = 0;       // number of buckets - 1, a power of two - 1
  uint64_t hash_key = 0;          // see KeyedHash

  // The index in this memory.
  static DeviceIndex Of(const DeviceArray<uint32_t>& tags,
                        const DeviceArray<IndexEntry>& entries) {
    return {tags.data(), entries.data(),
            static_cast<uint32_t>(entries.size() / kBucket - 1),
            ProcessHashKey()};
  }

  struct Hash {
    uint32_t bucket;
    uint32_t tag;
    uint32_t turn;  // preferred cell in each bucket
  };
  __device__ Hash HashOf(int64_t key) const {
    const uint64_t hash = KeyedHash(static_cast<uint64_t>(key), hash_key);
    const uint32_t low = static_cast<uint32_t>(hash);
    return {static_cast<uint32_t>(hash >> 32) & bucket_mask,
            kFirstTag + ((low & 0xffffu) * (256 - kFirstTag) >> 16),
            low >> 16 & (kBucket - 1)};
  }
  // The tags of a bucket, one bit per cell.
  struct Bucket {
    uint32_t match;  // tag equals the fingerprint
    uint32_t empty;
    uint32_t free;  // empty or removed
  };
  __device__ static Bucket Look(const TagWords& low, const TagWords& high,
                                uint32_t tag) {
    Bucket bucket = {};
#pragma unroll
    for (int w = 0; w < kBucketWords; ++w) {
      const uint32_t word = w < 4 ? low.word[w] : high.word[w - 4];
      bucket.match |= MatchTag(word, tag) << (4 * w);
      bucket.empty |= MatchTag(word, kEmptyTag) << (4 * w);
      bucket.free |= MatchTag(word & 0xfefefefeu, kEmptyTag) << (4 * w);
    }
    return bucket;
  }

  // Returns the cell of `key`, or -1.
  __device__ int64_t Find(int64_t key, int64_t* value) const {
    const Hash hash = HashOf(key);
    uint32_t number = hash.bucket;
    for (uint32_t n = 0; n <= bucket_mask; ++n) {
      const TagWords* const words =
          reinterpret_cast<const TagWords*>(tags) + int64_t{number} * 2;
      const Bucket bucket = Look(words[0], words[1], hash.tag);
      for (uint32_t match = bucket.match; match != 0; match &= match - 1) {
        const int64_t cell = int64_t{number} * kBucket + (__ffs(match) - 1);
        const IndexEntry entry = entries[cell];
        if (entry.key == key) {
          *value = entry.value;
          return cell;
        }
      }
      if (bucket.empty != 0) return -1;
      number = (number + n + 1) & bucket_mask;
    }
    return -1;
  }

  enum class Outcome { kNone, kFound, kInserted, kNoRoom };
  // Returns the value of each key for the threads with `mine`. For missing
  // keys, inserts the value make(inserts, reused). inserts: this thread
  // inserts; reused: into the cell of a removed key. All threads of the warp
  // must call this, and they call `make` together.
  //
  // A thread takes the first free cell on its key's probe sequence, and no cell
  // becomes free during the call. If two threads have the same key, the later
  // one finds the cell of the earlier one and retries until it is filled. No
  // thread waits within a round, and each thread fills its cell in the round in
  // which it was taken.
  template <typename Make>
  __device__ Outcome FindOrInsert(bool mine, int64_t key, const Make& make,
                                  int64_t* value) const {
    const Hash hash = HashOf(key);
    Outcome outcome = Outcome::kNone;
    while (__ballot_sync(kWholeWarp, mine) != 0) {
      int64_t cell = -1;
      uint32_t word = 0;
      if (mine) {
        cell = FindOrFree(key, hash, value, &word, &outcome);
        mine = outcome == Outcome::kNone;
      }
      uint32_t before = kFirstTag;
      if (mine && cell >= 0) before = Take(cell, word, hash.tag);
      const bool inserts = before < kFirstTag;
      const int64_t made = make(inserts, before == kRemovedTag);
      if (inserts) {
        *value = made;
        // Loads and stores of 16 aligned bytes are single accesses.
        longlong2 entry;
        entry.x = key;
        entry.y = made;
        __stcg(reinterpret_cast<longlong2*>(entries + cell), entry);
        outcome = Outcome::kInserted;
        mine = false;
      }
    }
    return outcome;
  }

  // Returns true if this thread removed the key, and the value it had. Sets
  // *emptied if the cell becomes empty instead of removed: no probe sequence
  // ever continued past a bucket that has had an empty cell since the index was
  // built, so none needs the marker.
  __device__ bool Remove(int64_t key, int64_t* value, bool* emptied) const {
    const int64_t cell = Find(key, value);
    if (cell < 0) return false;
    const TagWords* const words =
        reinterpret_cast<const TagWords*>(tags + cell / kBucket * kBucketWords);
    *emptied = Look(words[0], words[1], kFirstTag).empty != 0;
    const uint32_t shift = 8 * (cell % 4);
    const uint32_t tag = *emptied ? kEmptyTag : kRemovedTag;
    uint32_t* const word = tags + cell / 4;
    uint32_t was = *static_cast<volatile uint32_t*>(word);
    while ((was >> shift & 0xffu) >= kFirstTag) {
      const uint32_t found =
          atomicCAS(word, was, (was & ~(0xffu << shift)) | (tag << shift));
      if (found == was) {
        entries[cell].value = kNoValue;
        return true;
      }
      was = found;
    }
    return false;
  }

 private:
  // Returns the value of `key`, or the cell for inserting it and the word of
  // the cell's tag. Returns -1 without an outcome if the caller must retry.
  __device__ int64_t FindOrFree(int64_t key, const Hash& hash, int64_t* value,
                                uint32_t* word, Outcome* outcome) const {
    uint32_t number = hash.bucket;
    int64_t free = -1;
    for (uint32_t n = 0; n <= bucket_mask; ++n) {
      // Bypasses caches that other threads' stores do not reach.
      const uint4* const words =
          reinterpret_cast<const uint4*>(tags) + int64_t{number} * 2;
      const uint4 low = __ldcg(words);
      const uint4 high = __ldcg(words + 1);
      const Bucket bucket = Look({{low.x, low.y, low.z, low.w}},
                                 {{high.x, high.y, high.z, high.w}}, hash.tag);
      for (uint32_t match = bucket.match; match != 0; match &= match - 1) {
        const longlong2 entry = __ldcg(reinterpret_cast<const longlong2*>(
            entries + int64_t{number} * kBucket + (__ffs(match) - 1)));
        if (entry.y == kNoValue) return -1;
        if (entry.x == key) {
          *value = entry.y;
          *outcome = Outcome::kFound;
          return -1;
        }
      }
      if (free < 0 && bucket.free != 0) {
        // Keys start at different cells of a bucket, which reduces contention.
        const uint32_t turn = hash.turn;
        const uint32_t turned =
            bucket.free >> turn | bucket.free << ((kBucket - turn) % kBucket);
        const int cell = (__ffs(turned) - 1 + turn) % kBucket;
        free = int64_t{number} * kBucket + cell;
        const uint4 half = cell < kBucket / 2 ? low : high;
        const int w = cell / 4 % 4;
        *word = w == 0 ? half.x : w == 1 ? half.y : w == 2 ? half.z : half.w;
      }
      if (bucket.empty != 0) return free;
      number = (number + n + 1) & bucket_mask;
    }
    if (free < 0) *outcome = Outcome::kNoRoom;
    return free;
  }

  // Takes a free cell and returns its previous tag, or kFirstTag if another
  // thread was first. `was`: the expected word; its other three tags may change
  // concurrently.
  __device__ uint32_t Take(int64_t cell, uint32_t was, uint32_t tag) const {
    const uint32_t shift = 8 * (cell % 4);
    while ((was >> shift & 0xffu) < kFirstTag) {
      const uint32_t found = atomicCAS(
          tags + cell / 4, was, (was & ~(0xffu << shift)) | (tag << shift));
      if (found == was) return was >> shift & 0xffu;
      was = found;
    }
    return kFirstTag;
  }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_INDEX_H_
