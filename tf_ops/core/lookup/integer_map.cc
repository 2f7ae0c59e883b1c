#include "tf_ops/core/lookup/integer_map.h"

#include <utility>

namespace lodestar {

Status IntegerMap::Reserve(int64_t count) {
  if (count <= buckets_.capacity()) return Status();
  IntegerMap grown;
  LODESTAR_RETURN_IF_ERROR(
      grown.buckets_.Allocate(buckets_.CapacityFor(count), count));
  for (const Bucket& bucket : buckets_) {
    for (const Entry& entry : bucket.entries) {
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
  const int64_t* const value = Find(key);
  if (value == nullptr) return false;
  --live_;
  const int64_t offset = reinterpret_cast<const char*>(value) -
                         reinterpret_cast<const char*>(buckets_.begin());
  buckets_.Remove(
      offset / sizeof(Bucket), offset % sizeof(Bucket) / sizeof(Entry),
      [this](const Bucket& b, int lane) { return Home(b.entries[lane].key); });
  return true;
}

}  // namespace lodestar
