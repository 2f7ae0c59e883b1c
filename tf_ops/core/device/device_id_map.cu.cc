#include "tf_ops/core/device/device_id_map.h"

#include <algorithm>
#include <new>
#include <utility>

#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"

namespace lodestar {
namespace {

constexpr double kLoad = 0.7;

__global__ void BuildKernel(DeviceIndex index, const int64_t* keys,
                            int64_t count) {
  const int64_t i = ThreadNumber();
  const bool mine = i < count;
  int64_t place = 0;
  index.FindOrInsert(
      mine, mine ? keys[i] : 0, [&](bool, bool) { return i; }, &place);
}

__global__ void __launch_bounds__(kBlock)
    FindKernel(DeviceIndex index, const int64_t* of_places, const int64_t* keys,
               int64_t count, int64_t missing, int64_t* values) {
  const int64_t i = ThreadNumber();
  if (i >= count) return;
  int64_t place = 0;
  values[i] = index.Find(keys[i], &place) < 0 ? missing : of_places[place];
}

__global__ void __launch_bounds__(kBlock)
    FindOrHashKernel(DeviceIndex index, const int64_t* of_places,
                     const int64_t* keys, int64_t count, DecimalHash hash,
                     uint64_t num_buckets, int64_t first, int64_t* values) {
  const int64_t i = ThreadNumber();
  if (i >= count) return;
  int64_t place = 0;
  values[i] = index.Find(keys[i], &place) >= 0
                  ? of_places[place]
                  : first + static_cast<int64_t>(hash(keys[i]) % num_buckets);
}

template <typename K>
__global__ void WidenKernel(const K* keys, int64_t count, int64_t* widened) {
  const int64_t i = ThreadNumber();
  if (i < count) widened[i] = static_cast<int64_t>(keys[i]);
}

}  // namespace

template <typename K>
Status WidenKeys(const DeviceStream& on, const K* keys, int64_t count,
                 int64_t* widened) {
  return CudaStatus(
      Launch(WidenKernel<K>, count, on.stream, keys, count, widened),
      "conversion of keys");
}
template Status WidenKeys(const DeviceStream&, const int8_t*, int64_t,
                          int64_t*);
template Status WidenKeys(const DeviceStream&, const int16_t*, int64_t,
                          int64_t*);
template Status WidenKeys(const DeviceStream&, const int32_t*, int64_t,
                          int64_t*);
template Status WidenKeys(const DeviceStream&, const uint8_t*, int64_t,
                          int64_t*);
template Status WidenKeys(const DeviceStream&, const uint16_t*, int64_t,
                          int64_t*);
template Status WidenKeys(const DeviceStream&, const uint32_t*, int64_t,
                          int64_t*);

Status DeviceIdMap::Create(Span<const int64_t> keys, Span<const int64_t> values,
                           DeviceAllocator* allocator, const DeviceStream& on,
                           std::unique_ptr<DeviceIdMap>* out) {
  constexpr const char* kFor = "an id table";
  const int64_t count = keys.size();
  std::unique_ptr<DeviceIdMap> map(new (std::nothrow) DeviceIdMap());
  if (map == nullptr)
    return ResourceExhausted("out of memory for an id table.");
  int64_t cells = kBucket;
  while (static_cast<double>(cells) * kLoad < static_cast<double>(count)) {
    cells *= 2;
  }
  DeviceArray<int64_t> device_keys;
  LODESTAR_RETURN_IF_ERROR(map->tags_.Allocate(allocator, cells / 4, kFor));
  LODESTAR_RETURN_IF_ERROR(map->entries_.Allocate(allocator, cells, kFor));
  LODESTAR_RETURN_IF_ERROR(map->values_.Allocate(allocator, count, kFor));
  LODESTAR_RETURN_IF_ERROR(device_keys.Allocate(on.memory, count, kFor));
  LODESTAR_CUDA_TRY(
      cudaMemsetAsync(map->tags_.data(), 0, map->tags_.bytes(), on.stream));
  LODESTAR_CUDA_TRY(cudaMemsetAsync(map->entries_.data(), 0xff,
                                    map->entries_.bytes(), on.stream));
  const auto upload = [&](Span<const int64_t> from, int64_t* to) {
    return CopyToDevice(on, from.data(), count * sizeof(int64_t), to);
  };
  LODESTAR_RETURN_IF_ERROR(upload(keys, device_keys.data()));
  LODESTAR_RETURN_IF_ERROR(upload(values, map->values_.data()));
  LODESTAR_CUDA_TRY(Launch(BuildKernel, count, on.stream, map->index(),
                           device_keys.data(), count));
  LODESTAR_CUDA_TRY(cudaStreamSynchronize(on.stream));
  *out = std::move(map);
  return Status();
}

DeviceIndex DeviceIdMap::index() const {
  return DeviceIndex::Of(tags_, entries_);
}

int64_t DeviceIdMap::bytes() const {
  return tags_.bytes() + entries_.bytes() + values_.bytes();
}

Status DeviceIdMap::Find(const DeviceStream& on, const int64_t* keys,
                         int64_t count, int64_t missing,
                         int64_t* values) const {
  return CudaStatus(Launch(FindKernel, count, on.stream, index(),
                           values_.data(), keys, count, missing, values),
                    "lookup");
}

Status DeviceIdMap::FindOrHash(const DeviceStream& on, const int64_t* keys,
                               int64_t count, const DecimalHash& hash,
                               uint64_t num_buckets, int64_t first,
                               int64_t* values) const {
  return CudaStatus(
      Launch(FindOrHashKernel, count, on.stream, index(), values_.data(), keys,
             count, hash, num_buckets, first, values),
      "lookup");
}

}  // namespace lodestar
