// Compares eight concurrent callers of one table with a single caller, in CPU
// time. Each call is a counting lookup of 4,096 ids, 64 of them new, followed
// by the next step, on tables of 1M rows x 32 without an eviction order, with a
// cap, and with a maximum age. Reports the median of 9 interleaved runs. Prints
// one JSON line per policy.

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "benchmarks/timing.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace {

using lodestar::EmbeddingStore;
using lodestar::Event;
using lodestar::IdOf;
using lodestar::Median;
using lodestar::Require;
using lodestar::TablePolicies;
using Order = lodestar::EvictionPolicy::Order;

constexpr int kCallers = 8;
constexpr int kDim = 32;
constexpr int kBatches = 64;
constexpr int64_t kBatch = 4096;
constexpr int64_t kNew = 64;
constexpr int kRuns = 9;

// CPU time of all threads.
double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

int64_t LookedUp(const EmbeddingStore& store) {
  const lodestar::EmbeddingStats stats = store.Stats();
  return stats.count(Event::kHits) + stats.count(Event::kMisses) +
         stats.count(Event::kReadHits);
}

// Unique ids; some of them are in most batches, as in a click log.
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

  // CPU time of `calls` calls divided among `callers` threads.
  double Run(int callers, int calls) {
    std::atomic<int> next{0};
    std::vector<std::thread> threads;
    const double begin = ProcessorSeconds();
    for (int t = 0; t < callers; ++t) {
      threads.emplace_back([&] {
        int number;
        while ((number = next.fetch_add(1)) < calls) {
          Lookup(batches_[number % kBatches]);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ProcessorSeconds() - begin;
  }

 private:
  void Lookup(std::vector<int64_t> ids) {
    const int64_t fresh = fresh_.fetch_add(kNew);
    for (int64_t i = 0; i < kNew; ++i) ids[i] = IdOf(fresh + i);
    std::vector<lodestar::RowRef> refs(ids.size());
    Require(store_.FindOrInsert(ids, lodestar::kTraining, refs, nullptr));
    Require(store_.MoveStep(-1, {}));
  }

  EmbeddingStore& store_;
  std::vector<int64_t> batches_[kBatches];
  std::atomic<int64_t> fresh_;
};

std::unique_ptr<EmbeddingStore> Fill(const TablePolicies& policies,
                                     int64_t rows) {
  auto store = lodestar::NewStore(kDim, "zeros", policies);
  std::vector<int64_t> ids(rows);
  for (int64_t k = 0; k < rows; ++k) ids[k] = IdOf(k);
  const std::vector<float> zeros(rows * kDim);
  Require(store->InsertOrAssign(ids, zeros.data(), nullptr));
  Require(store->MoveStep(-1, {}));  // rows of this step cannot be evicted
  return store;
}

void Compare(const char* policy, const TablePolicies& policies, int64_t rows,
             int calls) {
  const auto store = Fill(policies, rows);
  Callers callers(rows, store.get());
  std::vector<double> ours;
  std::vector<double> baseline;
  const int64_t before = LookedUp(*store);
  callers.Run(1, calls);
  for (int run = 0; run < kRuns; ++run) {
    ours.push_back(callers.Run(kCallers, calls));
    baseline.push_back(callers.Run(1, calls));
  }
  const int64_t looked_up = LookedUp(*store) - before;
  if (looked_up != (2 * kRuns + 1) * calls * kBatch) std::exit(1);
  const double our_time = Median(ours) * 1e9 / (calls * kBatch);
  const double baseline_time = Median(baseline) * 1e9 / (calls * kBatch);
  std::printf(
      "{\"work\": \"lookup that counts, %lld of %lld rows, %s, %d callers\", "
      "\"baseline\": \"one caller\", \"ratio\": %.2f, \"wanted\": 0.9, "
      "\"ns_per_item\": %.1f, \"baseline_ns_per_item\": %.1f, \"runs\": %d, "
      "\"checksum\": \"%016llx\"}\n",
      static_cast<long long>(kBatch), static_cast<long long>(rows), policy,
      kCallers, baseline_time / our_time, our_time, baseline_time, kRuns,
      static_cast<unsigned long long>(looked_up));
  std::fflush(stdout);
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
  Compare("no policy", TablePolicies(), rows, calls);
  Compare("lru cap", lru, rows, calls);
  Compare("lfu cap", lfu, rows, calls);
  Compare("max_age", max_age, rows, calls);
}
