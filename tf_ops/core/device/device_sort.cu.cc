#include "tf_ops/core/device/device_sort.h"

#include <cub/cub.cuh>
#include <utility>

namespace lodestar {
namespace {

// Calls run(memory, bytes) twice: to get the size of the scratch memory, then
// to do the work.
template <typename Run>
Status WithMemory(const DeviceStream& on, const Run& run) {
  size_t bytes = 0;
  LODESTAR_CUDA_TRY(run(nullptr, bytes));
  DeviceArray<char> memory;
  LODESTAR_RETURN_IF_ERROR(
      memory.Allocate(on.memory, static_cast<int64_t>(bytes) + 1, "a sort"));
  return CudaStatus(run(memory.data(), bytes), "sort");
}

template <typename Key>
Status Sort(const DeviceStream& on, int64_t count, int bits,
            DeviceArray<Key>* keys, DeviceArray<uint32_t>* values) {
  if (count == 0) return Status();
  DeviceArray<Key> other_keys;
  DeviceArray<uint32_t> other_values;
  LODESTAR_RETURN_IF_ERROR(
      other_keys.Allocate(on.memory, keys->size(), "a sort"));
  LODESTAR_RETURN_IF_ERROR(
      other_values.Allocate(on.memory, values->size(), "a sort"));
  cub::DoubleBuffer<Key> key_buffer(keys->data(), other_keys.data());
  cub::DoubleBuffer<uint32_t> value_buffer(values->data(), other_values.data());
  LODESTAR_RETURN_IF_ERROR(WithMemory(on, [&](void* memory, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(
        memory, bytes, key_buffer, value_buffer, count, 0, bits, on.stream);
  }));
  if (key_buffer.Current() != keys->data()) std::swap(*keys, other_keys);
  if (value_buffer.Current() != values->data()) {
    std::swap(*values, other_values);
  }
  return Status();
}

}  // namespace

Status SortPairs(const DeviceStream& on, int64_t count, int bits,
                 DeviceArray<uint32_t>* keys, DeviceArray<uint32_t>* values) {
  return Sort(on, count, bits, keys, values);
}

Status SortPairs(const DeviceStream& on, int64_t count, int bits,
                 DeviceArray<uint64_t>* keys, DeviceArray<uint32_t>* values) {
  return Sort(on, count, bits, keys, values);
}

Status InclusiveSum(const DeviceStream& on, int64_t count,
                    const uint32_t* numbers, uint32_t* sums) {
  if (count == 0) return Status();
  return WithMemory(on, [&](void* memory, size_t& bytes) {
    return cub::DeviceScan::InclusiveSum(memory, bytes, numbers, sums, count,
                                         on.stream);
  });
}

}  // namespace lodestar
