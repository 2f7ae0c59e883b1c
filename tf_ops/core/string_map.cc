#include "tf_ops/core/string_map.h"

#include <cstring>

namespace lodestar {
namespace {

// At most 10 bytes.
char* WriteBase128(uint64_t x, char* out) {
  while (x >= 128) {
    *out++ = static_cast<char>(x | 128);
    x >>= 7;
  }
  *out++ = static_cast<char>(x);
  return out;
}

const char* ReadBase128(const char* in, uint64_t* x) {
  *x = 0;
  for (int shift = 0;; shift += 7) {
    const uint64_t byte = static_cast<unsigned char>(*in++);
    *x |= (byte & 127) << shift;
    if (byte < 128) return in;
  }
}

// Small numbers of either sign become small.
uint64_t ZigZag(int64_t x) {
  return (static_cast<uint64_t>(x) << 1) ^ static_cast<uint64_t>(x >> 63);
}

int64_t UnZigZag(uint64_t x) {
  return static_cast<int64_t>(x >> 1) ^ -static_cast<int64_t>(x & 1);
}

}  // namespace

StringMap::Record StringMap::Read(uint64_t slot) const {
  uint64_t length;
  const char* bytes = ReadBase128(RecordAt(slot), &length);
  uint64_t value;
  ReadBase128(bytes + length, &value);
  return {Key(bytes, length), UnZigZag(value)};
}

int64_t StringMap::FindSlot(Key key, uint64_t hash, int64_t* value) const {
  if (slots_.empty()) return -1;
  for (uint64_t i = Home(hash);; i = After(i)) {
    const uint64_t slot = slots_[i];
    if (slot == kFree) return -1;
    if (slot == kRemoved || (slot ^ hash) >> kPlaceBits != 0) continue;
    const Record record = Read(slot);
    if (record.key == key) {
      *value = record.value;
      return static_cast<int64_t>(i);
    }
  }
}

std::optional<int64_t> StringMap::Find(Key key, uint64_t hash) const {
  int64_t value;
  if (FindSlot(key, hash, &value) < 0) return std::nullopt;
  return value;
}

void StringMap::Reserve(int64_t count) {
  const int64_t capacity = count * 4 / 3 + 16;
  if (capacity > static_cast<int64_t>(slots_.size())) Rehash(capacity);
}

void StringMap::Rehash(int64_t capacity) {
  std::vector<uint64_t> grown(capacity, kFree);
  for (uint64_t slot : slots_) {
    if (slot == kFree || slot == kRemoved) continue;
    int64_t i = static_cast<int64_t>(HomeOf(Hash(Read(slot).key), capacity));
    while (grown[i] != kFree) i = i + 1 == capacity ? 0 : i + 1;
    grown[i] = slot;
  }
  slots_.swap(grown);
  used_ = live_;
}

// Returns the record's place. A key that does not fit what is left of a chunk
// begins a new one, of its own size if it is large.
uint64_t StringMap::Append(Key key, int64_t value) {
  char head[10];
  char tail[10];
  const int64_t head_size = WriteBase128(key.size(), head) - head;
  const int64_t tail_size = WriteBase128(ZigZag(value), tail) - tail;
  const int64_t size = head_size + static_cast<int64_t>(key.size()) + tail_size;
  if (size > chunk_left_) {
    const int64_t chunk = std::max(size, int64_t{1} << kChunkBits);
    chunks_.reserve(chunks_.size() + 1);
    chunks_.emplace_back(new char[chunk]);
    next_place_ = static_cast<uint64_t>(chunks_.size() - 1) << kChunkBits;
    // A record begins where its place can say it; none follows a large one.
    chunk_left_ = chunk > (int64_t{1} << kChunkBits) ? size : chunk;
    chunk_bytes_ += chunk;
  }
  const uint64_t place = next_place_;
  char* out = const_cast<char*>(RecordAt(place));
  std::memcpy(out, head, head_size);
  if (!key.empty()) std::memcpy(out + head_size, key.data(), key.size());
  std::memcpy(out + head_size + key.size(), tail, tail_size);
  chunk_left_ -= size;
  next_place_ += size;
  return place;
}

void StringMap::Assign(Key key, int64_t value) {
  const uint64_t hash = Hash(key);
  int64_t old_value;
  const int64_t found = FindSlot(key, hash, &old_value);
  if (found >= 0) {
    if (old_value != value) {
      slots_[found] = MakeSlot(hash, Append(key, value));
    }
    return;
  }
  if (slots_.empty() ||
      (used_ + 1) * 4 > static_cast<int64_t>(slots_.size()) * 3) {
    // Half full of live entries: larger by half; else it is removed ones that
    // fill it.
    int64_t capacity = std::max<int64_t>(16, slots_.size());
    if ((live_ + 1) * 2 > capacity) capacity += capacity / 2;
    Rehash(capacity);
  }
  const uint64_t place = Append(key, value);
  uint64_t i = Home(hash);
  while (slots_[i] != kFree && slots_[i] != kRemoved) i = After(i);
  if (slots_[i] == kFree) ++used_;
  slots_[i] = MakeSlot(hash, place);
  ++live_;
}

bool StringMap::Remove(Key key) {
  int64_t value;
  const int64_t found = FindSlot(key, Hash(key), &value);
  if (found < 0) return false;
  slots_[found] = kRemoved;
  --live_;
  return true;
}

}  // namespace lodestar
