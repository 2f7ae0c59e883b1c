// Times the embedding table in GPU memory: one line per case with the median
// time of a batch of a million unique ids, compared with a device-to-device
// copy of as many bytes. Counts each byte that must be read or written once:
// ids, rows, and row locations (24 bytes per id). docs/internals/kernels.md has
// the command line.

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/device_buffer.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/device/batch/device_batch.h"
#include "tf_ops/core/device/batch/device_gradient.h"
#include "tf_ops/core/device/device_store.h"

namespace lodestar {
namespace {

constexpr int64_t kBatch = int64_t{1} << 20;
constexpr int64_t kWhere = 24;
constexpr int kRuns = 15;
constexpr double kMaxLoad = 0.95;

void RequireOk(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

class Timer {
 public:
  explicit Timer(cudaStream_t stream) : stream_(stream) {
    REQUIRE_CUDA(cudaEventCreate(&begin_));
    REQUIRE_CUDA(cudaEventCreate(&end_));
  }
  // Median of the milliseconds of run(k). Calls after(k), untimed, after each.
  template <typename Run, typename After>
  double Median(const Run& run, const After& after) {
    std::vector<float> times;
    for (int k = 0; k < kRuns + 2; ++k) {
      REQUIRE_CUDA(cudaEventRecord(begin_, stream_));
      run(k);
      REQUIRE_CUDA(cudaEventRecord(end_, stream_));
      REQUIRE_CUDA(cudaEventSynchronize(end_));
      float milliseconds = 0;
      REQUIRE_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
      if (k >= 2) times.push_back(milliseconds);  // warmed up
      after(k);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
  template <typename Run>
  double Median(const Run& run) {
    return Median(run, [](int) {});
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// Unique ids, because Mix64 is a bijection.
std::vector<int64_t> IdsFrom(int64_t first, int64_t count) {
  std::vector<int64_t> ids(count);
  for (int64_t i = 0; i < count; ++i) {
    ids[i] = static_cast<int64_t>(
        Mix64(static_cast<uint64_t>(first + i) * kGoldenGamma));
  }
  return ids;
}

class Benchmark {
 public:
  Benchmark() {
    REQUIRE_CUDA(cudaStreamCreate(&stream_));
    cudaMemPool_t pool;
    REQUIRE_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    uint64_t keep = ~uint64_t{0};
    REQUIRE_CUDA(
        cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    memory_ = std::make_unique<StreamAllocator>(stream_);
    on_ = {stream_, memory_.get()};
    timer_ = std::make_unique<Timer>(stream_);
    cudaDeviceProp device;
    REQUIRE_CUDA(cudaGetDeviceProperties(&device, 0));
    constexpr int64_t kCopied = int64_t{1} << 31;
    const DeviceBuffer<char> from(kCopied), to(kCopied);
    const double time = timer_->Median([&](int) {
      REQUIRE_CUDA(cudaMemcpyAsync(to.data(), from.data(), kCopied,
                                   cudaMemcpyDeviceToDevice, stream_));
    });
    copy_ = 2.0 * kCopied / time / 1e6;
    std::printf("%s, copy of 2 GiB: %.0f GB/s read and written\n", device.name,
                copy_);
    std::printf("%-26s %4s %9s %5s %8s %10s %8s %6s\n", "case", "dim", "rows",
                "load", "ms", "M ids/s", "GB/s", "copy");
  }

  void Run(int64_t dim, int64_t rows, double load) {
    DeviceStore::Options options;
    options.dim = dim;
    options.max_load = kMaxLoad;
    RequireOk(RowInitializer::Create("uniform", -0.05f, 0.05f, 1, 1,
                                     &options.initializer));
    std::unique_ptr<DeviceStore> store;
    RequireOk(DeviceStore::Create(options, {std::shared_ptr<void>(), &cuda_},
                                  on_, &store));
    const int64_t row_bytes = dim * 4;
    dim_ = dim;
    rows_ = rows;
    load_ = load;
    // The index doubles in size, so the number of rows sets the load factor.
    int64_t cells = 32;
    while (static_cast<double>(cells) * load < static_cast<double>(rows)) {
      cells *= 2;
    }
    const int64_t resident =
        static_cast<int64_t>(static_cast<double>(cells) * load);
    rows_ = resident;
    // Room for a batch of new rows, if the maximum load factor allows it.
    const bool fits = static_cast<double>(resident + kBatch) <
                      kMaxLoad * static_cast<double>(cells);
    RequireOk(store->Reserve(on_, resident + (fits ? kBatch : 0), cells));
    DeviceStore::InsertOptions insert;
    insert.count_events = false;
    for (int64_t first = 0; first < resident; first += 16 * kBatch) {
      const int64_t count = std::min(16 * kBatch, resident - first);
      const DeviceBuffer<int64_t> ids(IdsFrom(first, count));
      RequireOk(
          store->FindOrInsert(on_, {ids.data(), count, nullptr}, insert, {}));
      REQUIRE_CUDA(cudaStreamSynchronize(stream_));
    }
    // Batches sampled from the entire table.
    std::vector<std::unique_ptr<DeviceBuffer<int64_t>>> batches;
    for (int k = 0; k < 4; ++k) {
      std::vector<int64_t> ids(kBatch);
      const int64_t stride = resident / kBatch;
      for (int64_t i = 0; i < kBatch; ++i) {
        const uint64_t mixed = Mix64(i + k * kBatch);
        ids[i] = static_cast<int64_t>(
            Mix64((i * stride + mixed % stride) * kGoldenGamma));
      }
      std::vector<int64_t> shuffled(kBatch);
      for (int64_t i = 0; i < kBatch; ++i) {
        shuffled[i] = ids[(i * 786433) % kBatch];
      }
      batches.push_back(std::make_unique<DeviceBuffer<int64_t>>(shuffled));
    }
    const auto batch = [&](int k) {
      return DeviceStore::Ids{batches[k % 4]->data(), kBatch, nullptr};
    };
    const DeviceBuffer<char> out(kBatch * row_bytes);
    const DeviceBuffer<uint32_t> refs(kBatch);
    Line("find", kBatch * (kWhere + 2 * row_bytes), timer_->Median([&](int k) {
      RequireOk(store->FindRows({batches[k % 4]->data(), kBatch}, nullptr, {},
                                out.data(), nullptr, on_));
    }));
    Line("find_or_insert, known", kBatch * (kWhere + 4 + 2 * row_bytes),
         timer_->Median([&](int k) {
           RequireOk(store->FindOrInsert(on_, batch(k), insert,
                                         {refs.data(), nullptr, out.data()}));
         }));
    // New rows, removed again so that the load factor stays.
    std::vector<std::unique_ptr<DeviceBuffer<int64_t>>> fresh;
    for (int k = 0; k < kRuns + 2; ++k) {
      fresh.push_back(std::make_unique<DeviceBuffer<int64_t>>(
          IdsFrom(resident + k * kBatch, kBatch)));
    }
    const auto make = [&](int k) {
      RequireOk(store->FindOrInsert(on_, {fresh[k]->data(), kBatch, nullptr},
                                    insert,
                                    {refs.data(), nullptr, out.data()}));
    };
    const int64_t made = kBatch * (kWhere + 4 + 24 + 2 * row_bytes);
    int64_t removed = 0;
    if (fits) {
      Line("find_or_insert, new", made, timer_->Median(make, [&](int k) {
        RequireOk(store->Remove({fresh[k]->data(), kBatch}, &removed, on_));
      }));
    }
    const std::vector<float> init = {0.1f};
    const std::vector<float> inits = {0.0f, 0.0f};
    const DeviceBuffer<float> gradients(
        std::vector<float>(kBatch * dim, 0.01f));
    const auto apply = [&](int k, const char* name,
                           const std::vector<float>& numbers,
                           const std::vector<float>& slots) {
      static const LookupPlan unique;
      TableUpdate update;
      update.table = store.get();
      update.ids = {batch(k).data, batch(k).size};
      update.plan = &unique;
      update.gradients = gradients.data();
      update.nonfinite = Nonfinite::kPass;
      update.optimizer = name;
      update.hyperparameters = numbers;
      update.slot_inits = slots;
      int64_t failed = 0;
      RequireOk(store->Update({&update, 1}, on_, &failed));
    };
    Line("adagrad", kBatch * (kWhere + 5 * row_bytes),
         timer_->Median(
             [&](int k) { apply(k, "adagrad", {0.1f, 0.0f, 1e-7f}, init); }));
    // A batch with repeated ids: a power law.
    std::vector<int64_t> skewed(kBatch);
    for (int64_t i = 0; i < kBatch; ++i) {
      const double u = static_cast<double>(Mix64(i + 99) >> 11) * 0x1p-53;
      const int64_t rank =
          static_cast<int64_t>(std::pow(static_cast<double>(resident), u)) - 1;
      skewed[i] = static_cast<int64_t>(Mix64(rank * kGoldenGamma));
    }
    const DeviceBuffer<int64_t> repeated(skewed);
    DeviceBatch unique;
    Line("distinct ids, repeated", kBatch * 24, timer_->Median([&](int) {
      DeviceBatch made;
      RequireOk(made.Unique(on_, {repeated.data(), kBatch, nullptr}, nullptr));
      unique = std::move(made);
    }));
    int64_t count = 0;
    RequireOk(unique.Count(on_, &count));
    const DeviceBuffer<float> sums(count * dim);
    Line("sum of gradients", (kBatch + count) * row_bytes,
         timer_->Median([&](int) {
           RequireOk(SumByPosition(on_, RowType::kFloat32, gradients.data(),
                                   unique.positions(), kBatch, count, dim,
                                   sums.data()));
         }));
    // Bags of eight.
    std::vector<int64_t> splits;
    for (int64_t i = 0; i <= kBatch; i += 8) splits.push_back(i);
    const DeviceBuffer<int64_t> device_splits(splits);
    DeviceStore::Bags bags;
    bags.row_splits = device_splits.data();
    bags.size = static_cast<int64_t>(splits.size()) - 1;
    bags.combiner = Combiner::kMean;
    Line("pooled lookup, bags of 8",
         kBatch * (kWhere + row_bytes) + bags.size * row_bytes,
         timer_->Median([&](int k) {
           RequireOk(store->Pool(on_, batch(k), bags, {}, out.data()));
         }));
    SlotGradient slot;
    slot.gradients = gradients.data();
    slot.num_ids = kBatch;
    slot.row_splits = bags.row_splits;
    slot.num_bags = bags.size;
    slot.combiner = bags.combiner;
    Line("sum of gradients of bags", (kBatch + count) * row_bytes,
         timer_->Median([&](int) {
           RequireOk(SumSlots(on_, RowType::kFloat32, {slot},
                              unique.positions(), count, dim, sums.data()));
         }));
    // While the table grows, with slots and memory for more rows.
    Line("the same, growing", made + kBatch * row_bytes, timer_->Median(make));
  }

 private:
  void Line(const char* name, int64_t bytes, double milliseconds) {
    const double rate = static_cast<double>(bytes) / milliseconds / 1e6;
    std::printf("%-26s %4lld %9lld %5.2f %8.3f %10.0f %8.0f %5.0f%%\n", name,
                static_cast<long long>(dim_), static_cast<long long>(rows_),
                load_, milliseconds, kBatch / milliseconds / 1e3, rate,
                100 * rate / copy_);
    std::fflush(stdout);
  }

  cudaStream_t stream_ = nullptr;
  CudaAllocator cuda_;
  std::unique_ptr<StreamAllocator> memory_;
  DeviceStream on_;
  std::unique_ptr<Timer> timer_;
  double copy_ = 0;
  int64_t dim_ = 0;
  int64_t rows_ = 0;
  double load_ = 0;
};

int Main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no CUDA device\n");
    return 0;
  }
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  Benchmark benchmark;
  for (const int64_t dim : {8, 32, 64, 128}) {
    benchmark.Run(dim, 10'000'000, 0.75);
  }
  if (quick) return 0;
  for (const double load : {0.25, 0.5, 0.9}) {
    benchmark.Run(64, 10'000'000, load);
  }
  benchmark.Run(8, 100'000'000, 0.75);
  benchmark.Run(64, 100'000'000, 0.75);
  return 0;
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) { return lodestar::Main(argc, argv); }
