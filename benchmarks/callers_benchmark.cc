// Eight callers of one table beside one, in time of the processor: look-ups
// that count, of 4,096 ids of which 64 are new, each followed by the next step,
// on tables of 1M rows x 32 whose rows go in no order, under a cap, and by age.
// The median of 9 runs of each side, in turn. Prints one JSON line a policy.

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/table_policies.h"

namespace {

using lodestar::EmbeddingStore;
using lodestar::TablePolicies;
using Order = lodestar::EvictionPolicy::Order;

constexpr int kCallers = 8;
constexpr int kDim = 32;
constexpr int kBatches = 64;
constexpr int64_t kBatch = 4096;
constexpr int64_t kNew = 64;
constexpr int kRuns = 9;

// Of all threads.
double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

// The k-th of the ids that a table is made of and that no batch repeats.
int64_t IdOf(int64_t k) {
  return static_cast<int64_t>(lodestar::Mix64(static_cast<uint64_t>(k)));
}

// Distinct ids, of which some, as in a click log, come in most batches.
std::vector<int64_t> MakeBatch(int64_t rows, std::mt19937_64* rng) {
  std::vector<int64_t> ids;
  while (ids.size() < kBatch) {
    for (int64_t i = 0; i < kBatch; ++i) {
      const double u = std::generate_canonical<double, 53>(*rng);
      ids.push_back(IdOf(static_cast<int64_t>(rows * u * u * u)));
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }
  std::shuffle(ids.begin(), ids.end(), *rng);
  ids.resize(kBatch);
  return ids;
}

class Callers {
 public:
  Callers(int64_t rows, EmbeddingStore* store) : store_(*store), fresh_(rows) {
    std::mt19937_64 rng(1);
    for (auto& batch : batches_) batch = MakeBatch(rows, &rng);
  }

  // Processor seconds of `calls` look-ups that `callers` threads share out.
  double Run(int callers, int calls) {
    std::atomic<int> next{0};
    std::vector<std::thread> threads;
    const double begin = ProcessorSeconds();
    for (int t = 0; t < callers; ++t) {
      threads.emplace_back([&] {
        int call;
        while ((call = next.fetch_add(1)) < calls) {
          LookUp(batches_[call % kBatches]);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ProcessorSeconds() - begin;
  }

 private:
  void LookUp(std::vector<int64_t> ids) {
    const int64_t fresh = fresh_.fetch_add(kNew);
    for (int64_t i = 0; i < kNew; ++i) ids[i] = IdOf(fresh + i);
    std::vector<lodestar::RowRef> refs(ids.size());
    EmbeddingStore::SightingOptions options;
    options.insert = options.count_sightings = true;
    if (!store_.FindOrInsert(ids, options, refs, nullptr).ok()) return;
    store_.MoveStep(-1);
  }

  EmbeddingStore& store_;
  std::vector<int64_t> batches_[kBatches];
  std::atomic<int64_t> fresh_;
};

int Measure(const char* name, const TablePolicies& policies, int64_t rows,
            int calls) {
  lodestar::RowInitializer initializer;
  std::unique_ptr<EmbeddingStore> store;
  if (!lodestar::RowInitializer::Create("zeros", 0, 0, 0, 0, &initializer)
           .ok() ||
      !EmbeddingStore::Create(kDim, 16, initializer, &store, policies).ok()) {
    return 1;
  }
  std::vector<int64_t> ids(rows);
  for (int64_t k = 0; k < rows; ++k) ids[k] = IdOf(k);
  const std::vector<float> zeros(rows * kDim);
  if (!store->InsertOrAssign(ids, zeros.data(), nullptr).ok()) return 1;
  store->MoveStep(-1);  // rows of this step do not make room
  Callers callers(rows, store.get());
  std::vector<double> ours;
  std::vector<double> baseline;
  callers.Run(1, calls);
  for (int run = 0; run < kRuns; ++run) {
    ours.push_back(callers.Run(kCallers, calls));
    baseline.push_back(callers.Run(1, calls));
  }
  const lodestar::EmbeddingStats stats = store->Stats();
  if (stats.count(lodestar::Event::kHits) +
          stats.count(lodestar::Event::kMisses) !=
      (2 * kRuns + 1) * calls * kBatch) {
    std::fprintf(stderr, "a look-up failed\n");
    return 1;
  }
  const auto per_id = [&](std::vector<double>* times) {
    std::sort(times->begin(), times->end());
    return (*times)[kRuns / 2] * 1e9 / (calls * kBatch);
  };
  const double our_time = per_id(&ours);
  const double baseline_time = per_id(&baseline);
  std::printf(
      "{\"work\": \"look-up that counts, %lld of %lld rows, %s, %d callers\", "
      "\"baseline\": \"one caller\", \"ratio\": %.2f, \"wanted\": 0.9, "
      "\"ns_per_item\": %.1f, \"baseline_ns_per_item\": %.1f, \"runs\": %d, "
      "\"checksum\": \"%016llx\"}\n",
      static_cast<long long>(kBatch), static_cast<long long>(rows), name,
      kCallers, baseline_time / our_time, our_time, baseline_time, kRuns,
      static_cast<unsigned long long>(stats.count(lodestar::Event::kHits) +
                                      stats.count(lodestar::Event::kMisses)));
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  const int64_t rows = small ? 100000 : 1000000;
  const int calls = small ? 20 : 400;
  TablePolicies lru;
  lru.eviction.max_rows = rows;
  TablePolicies lfu = lru;
  lfu.eviction.order = Order::kLfu;
  TablePolicies max_age;
  max_age.eviction.max_age = 1000;
  if (Measure("no policy", TablePolicies(), rows, calls) != 0) return 1;
  if (Measure("lru cap", lru, rows, calls) != 0) return 1;
  if (Measure("lfu cap", lfu, rows, calls) != 0) return 1;
  return Measure("max_age", max_age, rows, calls);
}
