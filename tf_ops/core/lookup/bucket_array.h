// BucketArray: a hash table's buckets of one cache line each, with open
// addressing. A bucket is filled from the left, and an entry whose bucket is
// full is stored in the next one with room. Removal closes the gap, so there
// are no tombstones.
//
// A Bucket has
//   kLanes, kMaxPerBucket   its entries, and their average number at most
//   used(lane), full()      zeroed memory is unused
//   Move(lane, from, other) copies an entry
//   Clear(lane)

#ifndef LODESTAR_TF_OPS_CORE_LOOKUP_BUCKET_ARRAY_H_
#define LODESTAR_TF_OPS_CORE_LOOKUP_BUCKET_ARRAY_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/memory/arena.h"

namespace lodestar {

template <typename Bucket>
class BucketArray {
 public:
  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(Bucket)); }
  // Number of keys.
  int64_t capacity() const { return capacity_; }
  // Returns the capacity to allocate for `count` keys. The first allocation is
  // exact. Later ones grow by at least half, so that adding keys one by one
  // takes amortized constant time.
  int64_t CapacityFor(int64_t count) const {
    return std::max(count, capacity_ + capacity_ / 2);
  }

  // Returns ResourceExhausted, with the requested `count`, if out of memory.
  // Requires: nothing is allocated.
  Status Allocate(int64_t capacity, int64_t count) {
    constexpr int64_t kMostKeys = int64_t{1} << 48;
    if (capacity <= kMostKeys) {
      memory_.reset(new (std::nothrow) Arena);
      size_ = capacity / Bucket::kMaxPerBucket + 1;
      if (memory_ != nullptr) {
        buckets_ = static_cast<Bucket*>(memory_->Allocate(bytes()));
      }
    }
    if (buckets_ == nullptr) {
      return ResourceExhausted("out of memory for a table of ", count,
                               " keys.");
    }
    capacity_ = capacity;
    return Status();
  }

  Bucket* at(uint64_t b) const { return buckets_ + b; }
  Bucket* begin() const { return buckets_; }
  Bucket* end() const { return buckets_ + size_; }
  // The first bucket to search for a uniform word; 0 if empty.
  uint64_t Home(uint64_t word) const { return FastRange64(word, size_); }
  uint64_t After(uint64_t b) const {
    return ++b == static_cast<uint64_t>(size_) ? 0 : b;
  }

  // Removes an entry. home_of(bucket, lane) returns the home of an entry.
  template <typename HomeOf>
  void Remove(uint64_t b, int lane, const HomeOf& home_of) {
    for (;;) {
      // The last entry of the bucket fills the gap.
      Bucket& bucket = buckets_[b];
      const bool was_full = bucket.full();
      int last = Bucket::kLanes - 1;
      while (!bucket.used(last)) --last;
      bucket.Move(lane, bucket, last);
      bucket.Clear(last);
      if (!was_full) return;
      // Move back an entry that skipped this bucket because it was full.
      bool found = false;
      for (uint64_t c = After(b); !found; c = After(c)) {
        if (c == b) return;
        const Bucket& later = buckets_[c];
        for (int i = 0; i < Bucket::kLanes && later.used(i) && !found; ++i) {
          if (Distance(home_of(later, i), c) < Distance(b, c)) continue;
          bucket.Move(last, later, i);
          b = c;
          lane = i;
          found = true;
        }
        if (!found && !later.full()) return;
      }
    }
  }

 private:
  uint64_t Distance(uint64_t from, uint64_t to) const {
    return to >= from ? to - from : to + size_ - from;
  }

  std::unique_ptr<Arena> memory_;
  Bucket* buckets_ = nullptr;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_LOOKUP_BUCKET_ARRAY_H_
