#include "tf_ops/core/lookup/string_map.h"

#include <new>
#include <utility>

namespace lodestar {
namespace {

// Writes at least `size` bytes, or more if the number needs them.
char* WriteBase128(uint64_t x, int64_t size, char* out) {
  while (x >= 128 || size > 1) {
    *out++ = static_cast<char>(x | 128);
    x >>= 7;
    --size;
  }
  *out++ = static_cast<char>(x);
  return out;
}

}  // namespace

Status StringMap::Reserve(int64_t count, int64_t record_bytes) {
  const int64_t live_bytes = record_memory_bytes_ - left_ - dead_bytes_;
  constexpr int64_t kFewDeadBytes = 64 << 10;
  if (count > capacity_ || dead_bytes_ > std::max(live_bytes, kFewDeadBytes)) {
    // The first reservation is exact. Later ones grow by at least half, so that
    // adding keys one by one takes amortized constant time.
    const int64_t wanted = count <= capacity_
                               ? capacity_
                               : std::max(count, capacity_ + capacity_ / 2);
    return Rebuild(wanted, record_bytes);
  }
  return AddRecordMemory(record_bytes);
}

Status StringMap::AddRecordMemory(int64_t bytes) {
  if (bytes <= left_) return Status();
  // Grows by at least an eighth, so that adding keys one by one seldom
  // allocates.
  constexpr int64_t kSmallest = 4 << 10;
  constexpr int64_t kLargest = 16 << 20;
  const int64_t size = std::max(
      bytes, std::clamp(record_memory_bytes_ / 8, kSmallest, kLargest));
  if (record_memory_ == nullptr) {
    record_memory_.reset(new (std::nothrow) Arena);
  }
  char* const memory = record_memory_ == nullptr
                           ? nullptr
                           : static_cast<char*>(record_memory_->Allocate(size));
  // Addresses are stored in 48 bits, which user space does not exceed.
  if (memory == nullptr || (reinterpret_cast<uintptr_t>(memory) >> 47) != 0) {
    return ResourceExhausted("out of memory for ", bytes, " bytes of keys.");
  }
  dead_bytes_ += left_;
  next_ = memory;
  left_ = size;
  record_memory_bytes_ += size;
  return Status();
}

Status StringMap::Rebuild(int64_t capacity, int64_t record_bytes) {
  constexpr int64_t kMostKeys = int64_t{1} << 48;
  StringMap grown;
  if (capacity <= kMostKeys) {
    grown.table_memory_.reset(new (std::nothrow) Arena);
    grown.num_buckets_ = capacity / kMaxPerBucket + 1;
    if (grown.table_memory_ != nullptr) {
      grown.buckets_ = static_cast<Bucket*>(grown.table_memory_->Allocate(
          grown.num_buckets_ * static_cast<int64_t>(sizeof(Bucket))));
    }
  }
  if (grown.buckets_ == nullptr) {
    return ResourceExhausted("out of memory for a table of ", capacity,
                             " keys.");
  }
  grown.capacity_ = capacity;
  const int64_t live_bytes = record_memory_bytes_ - left_ - dead_bytes_;
  const bool copies = dead_bytes_ > live_bytes;
  if (copies) {
    LODESTAR_RETURN_IF_ERROR(grown.AddRecordMemory(live_bytes + record_bytes));
  } else {
    LODESTAR_RETURN_IF_ERROR(AddRecordMemory(record_bytes));
  }
  for (int64_t b = 0; b < num_buckets_; ++b) {
    for (int lane = 0; lane < kLanes && buckets_[b].tags[lane] != 0; ++lane) {
      char* const record = buckets_[b].record(lane);
      const Key key = KeyOf(record);
      const uint64_t hash = Hash(key);
      uint64_t home = grown.Home(hash);
      while (grown.buckets_[home].full()) home = grown.After(home);
      grown.Append(home, hash,
                   copies ? grown.WriteRecord(key, ValueOf(record)) : record);
    }
  }
  if (!copies) {
    grown.record_memory_ = std::move(record_memory_);
    grown.next_ = next_;
    grown.left_ = left_;
    grown.record_memory_bytes_ = record_memory_bytes_;
    grown.dead_bytes_ = dead_bytes_;
  }
  *this = std::move(grown);
  return Status();
}

char* StringMap::WriteRecord(Key key, int64_t value) {
  char* const record = next_;
  char* out = WriteBase128(key.size(), 1, record);
  if (!key.empty()) std::memcpy(out, key.data(), key.size());
  next_ = WriteBase128(ZigZag(value), 1, out + key.size());
  left_ -= next_ - record;
  return record;
}

void StringMap::Append(uint64_t b, uint64_t hash, char* record) {
  Bucket& bucket = buckets_[b];
  int lane = 0;
  while (bucket.tags[lane] != 0) ++lane;
  bucket.set(lane, TagOf(hash), record);
  ++live_;
}

void StringMap::Assign(Key key, uint64_t hash, int64_t value) {
  const Found found = FindKey(key, hash);
  if (found.record == nullptr) {
    Append(found.bucket, hash, WriteRecord(key, value));
    return;
  }
  const int64_t old_value = ValueOf(found.record);
  if (old_value == value) return;
  const Key old = KeyOf(found.record);
  char* const tail = const_cast<char*>(old.data() + old.size());
  uint64_t zigzag;
  const int64_t room = ReadBase128(tail, &zigzag) - tail;
  if (Base128Bytes(ZigZag(value)) <= room) {
    WriteBase128(ZigZag(value), room, tail);
    return;
  }
  dead_bytes_ += tail + room - found.record;
  buckets_[found.bucket].set(found.lane, TagOf(hash), WriteRecord(key, value));
}

bool StringMap::Remove(Key key) {
  if (num_buckets_ == 0) return false;
  const Found found = FindKey(key, Hash(key));
  if (found.record == nullptr) return false;
  dead_bytes_ += RecordBytes(key, ValueOf(found.record));
  --live_;
  uint64_t b = found.bucket;
  int lane = found.lane;
  for (;;) {
    // The last record of the line fills the gap, so the line stays filled from
    // the left.
    Bucket& bucket = buckets_[b];
    const bool was_full = bucket.full();
    int last = kLanes - 1;
    while (bucket.tags[last] == 0) --last;
    bucket.set(lane, bucket.tags[last], bucket.record(last));
    bucket.set(last, 0, nullptr);
    if (!was_full) return true;
    // Move back a record that skipped this line because it was full.
    bool found = false;
    for (uint64_t c = After(b); !found; c = After(c)) {
      if (c == b) return true;
      const Bucket& later = buckets_[c];
      for (int i = 0; i < kLanes && later.tags[i] != 0; ++i) {
        const uint64_t home = Home(Hash(KeyOf(later.record(i))));
        const uint64_t from_home =
            c >= home ? c - home : c + num_buckets_ - home;
        const uint64_t from_gap = c >= b ? c - b : c + num_buckets_ - b;
        if (from_home < from_gap) continue;
        bucket.set(last, later.tags[i], later.record(i));
        b = c;
        lane = i;
        found = true;
        break;
      }
      if (!found && !later.full()) return true;
    }
  }
}

}  // namespace lodestar
