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
  const int64_t capacity = buckets_.capacity();
  if (count > capacity || dead_bytes_ > std::max(live_bytes, kFewDeadBytes)) {
    return Rebuild(count > capacity ? buckets_.CapacityFor(count) : capacity,
                   record_bytes);
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
  StringMap grown;
  LODESTAR_RETURN_IF_ERROR(grown.buckets_.Allocate(capacity, capacity));
  const int64_t live_bytes = record_memory_bytes_ - left_ - dead_bytes_;
  const bool copies = dead_bytes_ > live_bytes;
  if (copies) {
    LODESTAR_RETURN_IF_ERROR(grown.AddRecordMemory(live_bytes + record_bytes));
  } else {
    LODESTAR_RETURN_IF_ERROR(AddRecordMemory(record_bytes));
  }
  for (const Bucket& bucket : buckets_) {
    for (int lane = 0; lane < kLanes && bucket.used(lane); ++lane) {
      char* const record = bucket.record(lane);
      const Key key = KeyOf(record);
      const uint64_t word = WordOf(Hash(key));
      uint64_t home = grown.Home(word);
      while (grown.buckets_.at(home)->full()) home = grown.buckets_.After(home);
      grown.Append(home, word,
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

void StringMap::Append(uint64_t b, uint64_t word, char* record) {
  Bucket& bucket = *buckets_.at(b);
  int lane = 0;
  while (bucket.used(lane)) ++lane;
  bucket.set(lane, TagOf(word), record);
  ++live_;
}

void StringMap::Assign(Key key, uint64_t word, int64_t value) {
  const Found found = FindKey(key, word);
  if (found.record == nullptr) {
    Append(found.bucket, word, WriteRecord(key, value));
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
  buckets_.at(found.bucket)
      ->set(found.lane, TagOf(word), WriteRecord(key, value));
}

bool StringMap::Remove(Key key) {
  if (buckets_.empty()) return false;
  const Found found = FindKey(key, WordOf(Hash(key)));
  if (found.record == nullptr) return false;
  dead_bytes_ += RecordBytes(key, ValueOf(found.record));
  --live_;
  buckets_.Remove(found.bucket, found.lane, [this](const Bucket& b, int lane) {
    return Home(WordOf(Hash(KeyOf(b.record(lane)))));
  });
  return true;
}

}  // namespace lodestar
