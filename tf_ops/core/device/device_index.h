// DeviceIndex: int64 key -> 64-bit value in device memory, open addressing in
// buckets of 32 cells.
//
//   tags     a byte a cell: empty, removed, or a fingerprint of the key. The
//            tags of a bucket are one 32-byte sector
//   entries  key and value of each cell, 16 bytes
//
// A key lies in the first bucket on its way that had room; the way goes on by
// one bucket, then two, three and so on, which meets each of them. A search
// ends at a bucket with an empty cell: so most take one sector of tags and one
// of an entry, whether they find their key or not.
//
// All keys are ordinary ones, and all values but kNoValue. Threads that insert
// may run beside each other, and so may those that search, and those that
// remove; but not two of the three.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_INDEX_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_INDEX_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/device/device_launch.h"

namespace lodestar {

struct alignas(16) IndexEntry {
  int64_t key;
  int64_t value;
};

// Cells of a bucket, and the words of their tags.
constexpr int kBucket = 32;
constexpr int kBucketWords = kBucket / 4;

struct alignas(16) TagWords {
  uint32_t word[4];
};

constexpr uint32_t kEmptyTag = 0;
constexpr uint32_t kRemovedTag = 1;
constexpr uint32_t kFirstTag = 2;
// Of a cell that is free, or that a thread has taken but not filled yet. So
// memory for entries begins as bytes of 0xff.
constexpr int64_t kNoValue = -1;

// A bit for each of the four bytes of `word` that is `tag`.
__device__ inline uint32_t MatchTag(uint32_t word, uint32_t tag) {
  const uint32_t x = word ^ (tag * 0x01010101u);
  const uint32_t equal = ~(((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) & 0x80808080u;
  // The four bits side by side: no two products of them meet in one bit.
  return ((equal >> 7) * 0x10204080u) >> 28;
}

struct DeviceIndex {
  uint32_t* tags = nullptr;       // [buckets, kBucketWords]
  IndexEntry* entries = nullptr;  // [buckets, kBucket]
  uint32_t bucket_mask = 0;       // buckets are a power of two

  struct Hash {
    uint32_t bucket;
    uint32_t tag;
    uint32_t turn;  // the cell of a bucket that it would have first
  };
  __device__ Hash HashOf(int64_t key) const {
    const uint64_t hash = Mix64(static_cast<uint64_t>(key));
    const uint32_t low = static_cast<uint32_t>(hash);
    return {static_cast<uint32_t>(hash >> 32) & bucket_mask,
            kFirstTag + ((low & 0xffffu) * (256 - kFirstTag) >> 16),
            low >> 16 & (kBucket - 1)};
  }
  // What the tags of a bucket say: a bit a cell.
  struct Bucket {
    uint32_t match;  // this fingerprint
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

  // The cell of `key`, or -1.
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
  // The value of the key of each thread that has `mine`; where it has none yet,
  // that is make(inserts, reused), which is then inserted. inserts: for this
  // thread; reused: in the cell of a key that was removed. All threads of the
  // warp call it, and make.
  //
  // A thread takes the first free cell on the way of its key, and no cell gets
  // free meanwhile: of two threads with one key the later one meets what the
  // earlier one took, and looks again until it is filled. Nobody waits inside a
  // round, and who takes a cell fills it in the same round.
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
        // 16 aligned bytes are stored, and loaded, at once.
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

  // Whether this thread removed the key, and what value it had. *emptied: its
  // cell is empty. No search goes on behind a bucket that has such a cell, and
  // none ever did since the index was made: only then may another one get so.
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
  // The value of `key`, or the cell that it is to lie in, and the word of its
  // tag; -1, and no outcome: look again.
  __device__ int64_t FindOrFree(int64_t key, const Hash& hash, int64_t* value,
                                uint32_t* word, Outcome* outcome) const {
    uint32_t number = hash.bucket;
    int64_t free = -1;
    for (uint32_t n = 0; n <= bucket_mask; ++n) {
      // Not from a cache that another thread's store does not reach.
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
        // Each key begins its own way round, so that keys seldom meet.
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

  // The tag of a free cell before this thread took it; kFirstTag: another one
  // did. `was` is the tag's word, whose other cells may change meanwhile.
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
