#include "tf_ops/core/lookup/integer_map.h"

#include <new>
#include <utility>

namespace lodestar {

Status IntegerMap::Reserve(int64_t count) {
  if (count <= capacity_) return Status();
  // The first reservation is exact. Later ones grow by at least half, so that
  // adding keys one by one takes amortized constant time.
  const int64_t wanted = std::max(count, capacity_ + capacity_ / 2);
  constexpr int64_t kMostKeys = int64_t{1} << 48;
  IntegerMap grown;
  if (wanted <= kMostKeys) {
    grown.memory_.reset(new (std::nothrow) Arena);
    grown.num_buckets_ = wanted / kMaxPerBucket + 1;
    if (grown.memory_ != nullptr) {
      grown.buckets_ = static_cast<Bucket*>(grown.memory_->Allocate(
          grown.num_buckets_ * static_cast<int64_t>(sizeof(Bucket))));
    }
  }
  if (grown.buckets_ == nullptr) {
    return ResourceExhausted("out of memory for a table of ", count, " keys.");
  }
  grown.capacity_ = wanted;
  for (int64_t b = 0; b < num_buckets_; ++b) {
    for (const Entry& entry : buckets_[b].entries) {
      if (entry.key == kFree) break;
      grown.FindOrAdd(grown.Home(entry.key), entry.key, entry.value);
    }
  }
  grown.free_key_value_ = free_key_value_;
  *this = std::move(grown);
  return Status();
}

bool IntegerMap::Remove(Key key) {
  if (key == kFree) {
    const bool there = free_key_value_.has_value();
    free_key_value_.reset();
    return there;
  }
  int64_t* const value = const_cast<int64_t*>(Find(key));
  if (value == nullptr) return false;
  --live_;
  const int64_t offset =
      reinterpret_cast<char*>(value) - reinterpret_cast<char*>(buckets_);
  uint64_t b = static_cast<uint64_t>(offset) / sizeof(Bucket);
  int lane = static_cast<int>(offset % sizeof(Bucket) / sizeof(Entry));
  for (;;) {
    // The last entry of the line fills the gap, so the line stays filled from
    // the left.
    Entry* const entries = buckets_[b].entries;
    const bool was_full = buckets_[b].full();
    int last = kLanes - 1;
    while (entries[last].key == kFree) --last;
    entries[lane] = entries[last];
    entries[last] = {kFree, 0};
    if (!was_full) return true;
    // Move back an entry that skipped this line because it was full.
    bool found = false;
    for (uint64_t c = After(b); !found; c = After(c)) {
      if (c == b) return true;
      const Bucket& bucket = buckets_[c];
      for (int i = 0; i < kLanes && bucket.entries[i].key != kFree; ++i) {
        const uint64_t home = Home(bucket.entries[i].key);
        const uint64_t from_home =
            c >= home ? c - home : c + num_buckets_ - home;
        const uint64_t from_gap = c >= b ? c - b : c + num_buckets_ - b;
        if (from_home < from_gap) continue;
        entries[last] = bucket.entries[i];
        b = c;
        lane = i;
        found = true;
        break;
      }
      if (!found && !bucket.full()) return true;
    }
  }
}

}  // namespace lodestar
