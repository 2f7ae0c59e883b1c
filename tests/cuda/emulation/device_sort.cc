// device_sort.h on host memory.

#include "tf_ops/core/device/device_sort.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lodestar {
namespace {

template <typename Key>
Status Sort(int64_t count, int bits, DeviceArray<Key>* keys,
            DeviceArray<uint32_t>* values) {
  const Key mask = bits == 8 * sizeof(Key) ? ~Key{0} : (Key{1} << bits) - 1;
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return (keys->data()[a] & mask) < (keys->data()[b] & mask);
  });
  const std::vector<Key> old_keys(keys->data(), keys->data() + count);
  const std::vector<uint32_t> old_values(values->data(),
                                         values->data() + count);
  for (int64_t i = 0; i < count; ++i) {
    keys->data()[i] = old_keys[order[i]];
    values->data()[i] = old_values[order[i]];
  }
  return Status();
}

}  // namespace

Status SortPairs(const DeviceStream&, int64_t count, int bits,
                 DeviceArray<uint32_t>* keys, DeviceArray<uint32_t>* values) {
  return Sort(count, bits, keys, values);
}

Status SortPairs(const DeviceStream&, int64_t count, int bits,
                 DeviceArray<uint64_t>* keys, DeviceArray<uint32_t>* values) {
  return Sort(count, bits, keys, values);
}

Status InclusiveSum(const DeviceStream&, int64_t count, const uint32_t* numbers,
                    uint32_t* sums) {
  std::partial_sum(numbers, numbers + count, sums);
  return Status();
}

}  // namespace lodestar
