// Compares the id table in GPU memory with IntegerMap and BucketHash on random
// input; with --benchmark, also measures it. Needs neither Bazel nor TensorFlow
// (see docs/internals/kernels.md). Skipped without a device.

#include "tf_ops/core/device/device_id_map.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/core/testing/chosen_ids.h"
#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/device/batch/device_batch.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/lookup/bucket_hash.h"
#include "tf_ops/core/lookup/integer_map.h"

namespace lodestar {
namespace {

using Random = std::mt19937_64;
using Numbers = std::vector<int64_t>;

// Keys of all decimal lengths.
int64_t DrawKey(Random* random) {
  constexpr int64_t kEnds[] = {0, std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<int64_t>::max()};
  const uint64_t word = (*random)();
  if (word % 50 == 0) return kEnds[word / 50 % 3];
  return static_cast<int64_t>((*random)()) >> (word % 64);
}

void TestMap(Random* random, int64_t size) {
  cudaStream_t stream;
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  {
    CudaAllocator allocator;
    StreamAllocator memory(stream);
    const DeviceStream on = {stream, &memory};
    IntegerMap host;
    Numbers keys, values;
    ExpectOk(host.Reserve(size), "reserve");
    for (int64_t i = 0; i < size; ++i) {
      const int64_t key = DrawKey(random);
      if (host.Find(key) != nullptr) continue;
      keys.push_back(key);
      values.push_back(static_cast<int64_t>((*random)() % 5) - 2);
      ExpectOk(host.Insert(
                   1, [&](int64_t) { return keys.back(); },
                   [&](int64_t) { return values.back(); }),
               "insert");
    }
    std::unique_ptr<DeviceIdMap> map;
    ExpectOk(DeviceIdMap::Create(keys, values, &allocator, on, &map), "create");
    Numbers asked;
    for (int64_t i = 0; i < size + 40; ++i) {
      asked.push_back(i % 2 == 0 || keys.empty()
                          ? DrawKey(random)
                          : keys[(*random)() % keys.size()]);
    }
    const int64_t count = static_cast<int64_t>(asked.size());
    const DeviceBuffer<int64_t> device_asked(asked);
    const DeviceBuffer<int64_t> found(count);
    const auto check = [&](const std::string& what, const auto& missing) {
      REQUIRE_CUDA(cudaStreamSynchronize(stream));
      Numbers wanted(count);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t* const value = host.Find(asked[i]);
        wanted[i] = value != nullptr ? *value : missing(asked[i]);
      }
      Expect(found.Download() == wanted, what);
      Expect(found.ZonesAreIntact(), what + ": writes outside its output");
    };
    ExpectOk(map->Find(on, device_asked.data(), count, -7, found.data()),
             "find");
    check("find", [](int64_t) { return -7; });
    for (const char* const name : {"fast", "strong", "legacy"}) {
      const Numbers hash_key = {3, -4};
      BucketHash hash;
      ExpectOk(BucketHash::Create(name,
                                  std::strcmp(name, "strong") == 0
                                      ? Span<const int64_t>(hash_key)
                                      : Span<const int64_t>(),
                                  &hash),
               name);
      for (const uint64_t buckets :
           {uint64_t{1}, uint64_t{1000}, uint64_t{1} << 62}) {
        ExpectOk(map->FindOrHash(on, device_asked.data(), count, hash.decimal(),
                                 buckets, 5, found.data()),
                 name);
        check(name, [&](int64_t key) {
          return 5 + static_cast<int64_t>(hash(key) % buckets);
        });
      }
    }
  }
  cudaStreamDestroy(stream);
}

// Keys that collide in tables without a key take no longer than others.
void TestChosenKeys() {
  constexpr int64_t kKeys = 16384;
  cudaStream_t stream;
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  {
    CudaAllocator allocator;
    StreamAllocator memory(stream);
    const DeviceStream on = {stream, &memory};
    const auto build = [&](const Numbers& keys) {
      std::unique_ptr<DeviceIdMap> map;
      ExpectOk(DeviceIdMap::Create(keys, keys, &allocator, on, &map), "create");
    };
    const auto find_unique = [&](const Numbers& keys) {
      const DeviceBuffer<int64_t> ids(keys);
      DeviceBatch batch;
      ExpectOk(batch.Unique(on, {ids.data(), kKeys, nullptr}, nullptr),
               "unique");
      REQUIRE_CUDA(cudaStreamSynchronize(stream));
    };
    const auto seconds = [](const auto& call, const Numbers& keys) {
      return CpuSecondsOf([&] { call(keys); });
    };
    const Numbers usual = RandomIds(kKeys);
    Expect(
        seconds(build, IdsWithEqualHighBits(kKeys)) < 5 * seconds(build, usual),
        "chosen keys of an id table");
    Expect(seconds(find_unique, IdsWithEqualLowBits(kKeys)) <
               5 * seconds(find_unique, usual),
           "chosen ids of a batch");
  }
  cudaStreamDestroy(stream);
}

#ifdef __DRIVER_TYPES_H__
void Benchmark() {
  constexpr int64_t kKeys = 10'000'000;
  constexpr int64_t kBatch = int64_t{1} << 20;
  cudaStream_t stream;
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  CudaAllocator allocator;
  StreamAllocator memory(stream);
  const DeviceStream on = {stream, &memory};
  Numbers keys(kKeys), values(kKeys), asked(kBatch);
  for (int64_t i = 0; i < kKeys; ++i) {
    keys[i] = static_cast<int64_t>(Mix64(i));
    values[i] = i;
  }
  std::unique_ptr<DeviceIdMap> map;
  ExpectOk(DeviceIdMap::Create(keys, values, &allocator, on, &map), "create");
  cudaEvent_t begin, end;
  REQUIRE_CUDA(cudaEventCreate(&begin));
  REQUIRE_CUDA(cudaEventCreate(&end));
  for (const int misses : {0, 10, 100}) {
    for (int64_t i = 0; i < kBatch; ++i) {
      const uint64_t word = Mix64(i + 77);
      asked[i] = static_cast<int64_t>(
          Mix64(static_cast<int>(word % 100) < misses
                    ? kKeys + i
                    : static_cast<int64_t>((word >> 8) % kKeys)));
    }
    const DeviceBuffer<int64_t> device_asked(asked);
    const DeviceBuffer<int64_t> found(kBatch);
    std::vector<float> times;
    for (int run = 0; run < 17; ++run) {
      REQUIRE_CUDA(cudaEventRecord(begin, stream));
      ExpectOk(map->FindOrHash(on, device_asked.data(), kBatch, DecimalHash(),
                               1000, kKeys, found.data()),
               "find");
      REQUIRE_CUDA(cudaEventRecord(end, stream));
      REQUIRE_CUDA(cudaEventSynchronize(end));
      float milliseconds = 0;
      REQUIRE_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
      if (run >= 2) times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    std::printf(
        "find or hash, 10 M keys, %3d %% misses %8.3f ms %8.0f M ids/s\n",
        misses, times[times.size() / 2],
        kBatch / times[times.size() / 2] / 1e3);
  }
}
#endif

int Main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no CUDA device\n");
    return 0;
  }
  const bool few = argc > 1 && std::strcmp(argv[1], "--few") == 0;
  const uint64_t seed = std::random_device()();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  for (const int64_t size : {0, 1, 31, 1000, few ? 2000 : 200000}) {
    TestMap(&random, size);
  }
  TestChosenKeys();
#ifdef __DRIVER_TYPES_H__
  if (argc > 1 && std::strcmp(argv[1], "--benchmark") == 0) Benchmark();
#endif
  return ReportChecks();
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) { return lodestar::Main(argc, argv); }
