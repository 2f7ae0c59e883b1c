// Cost of eviction. A table at its cap looks up batches of 4,096 new ids and
// evicts as many rows, with 0.1M and 10M rows, compared with the same lookups
// without a cap. One thread, dim 8. Prints one JSON line per policy and size:
// nanoseconds per id, and the slowest calls.
//
// Then steps (lookup and Adagrad update of 4,096 ids, zipf(1.05) of 1M, dim 32)
// of a table that evicts by itself: the time of moving the step, which evicts,
// as a share of the step.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "benchmarks/timing.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/sparse_optimizer.h"

namespace {

using lodestar::EmbeddingStore;
using Order = lodestar::EvictionPolicy::Order;

constexpr int kDim = 8;
constexpr int64_t kBatch = 4096;
constexpr int kCalls = 400;

// Seconds of each of kCalls lookups of new ids after inserting `rows` other
// ids, ascending.
std::vector<double> Time(const lodestar::TablePolicies& policies, int64_t rows,
                         lodestar::EmbeddingStats* stats) {
  const auto store = lodestar::NewStore(kDim, "zeros", policies);
  std::vector<int64_t> ids(kBatch);
  std::vector<lodestar::RowRef> refs(kBatch);
  std::vector<double> times;
  const int64_t before = rows / kBatch + 1;
  for (int64_t call = 0; call < before + kCalls; ++call) {
    for (int64_t i = 0; i < kBatch; ++i) ids[i] = call * kBatch + i;
    lodestar::Require(store->SetStep(call));
    const double begin = lodestar::Seconds();
    lodestar::Require(
        store->FindOrInsert(ids, lodestar::kTraining, refs, nullptr));
    if (call >= before) times.push_back(lodestar::Seconds() - begin);
  }
  *stats = store->Stats();
  std::sort(times.begin(), times.end());
  return times;
}

void Measure(const char* name, Order order, int64_t rows) {
  lodestar::TablePolicies policies;
  lodestar::EmbeddingStats stats;
  const std::vector<double> plain = Time(policies, rows, &stats);
  policies.eviction.max_rows = rows;
  policies.eviction.order = order;
  const std::vector<double> capped = Time(policies, rows, &stats);
  if (stats.rows != rows) std::exit(1);
  const double per_id = 1e9 / kBatch;
  std::printf(
      "{\"work\": \"lookup of %lld new ids, %s cap of %lld rows\", "
      "\"baseline\": \"the same without a cap\", \"ratio\": %.2f, "
      "\"ns_per_item\": %.1f, \"baseline_ns_per_item\": %.1f, "
      "\"p99_ms\": %.2f, \"slowest_ms\": %.2f, \"order_bytes_per_row\": %.1f, "
      "\"runs\": %d, \"checksum\": \"%016llx\"}\n",
      static_cast<long long>(kBatch), name, static_cast<long long>(rows),
      plain[kCalls / 2] / capped[kCalls / 2], capped[kCalls / 2] * per_id,
      plain[kCalls / 2] * per_id, capped[kCalls * 99 / 100] * 1e3,
      capped[kCalls - 1] * 1e3,
      static_cast<double>(stats.policy_bytes) / static_cast<double>(rows),
      kCalls,
      static_cast<unsigned long long>(stats.count(lodestar::Event::kEvicted)));
}

constexpr int kWide = 32;
constexpr int kSteps = 1000;  // per run
constexpr int kRuns = 7;

void MeasureSteps(const char* name, const lodestar::EvictionPolicy& eviction,
                  int64_t number, bool small) {
  lodestar::TablePolicies policies;
  policies.eviction = eviction;
  const auto store = lodestar::NewStore(kWide, "uniform", policies);
  const int64_t rows = small ? 100000 : 1000000;
  const std::vector<float> numbers = {0.1f, 0.0f, 1e-7f};
  lodestar::SparseOptimizer adagrad;
  lodestar::Require(
      lodestar::SparseOptimizer::Create("adagrad", numbers, &adagrad));
  const std::vector<float> inits = {0.1f};
  const std::vector<float> gradients(kBatch * kWide, 0.01f);
  std::mt19937_64 rng(1);
  const auto batch = [&] {
    std::vector<int64_t> ids;
    while (static_cast<int64_t>(ids.size()) < kBatch) {
      while (static_cast<int64_t>(ids.size()) < kBatch) {
        const double u = std::generate_canonical<double, 53>(rng);
        ids.push_back(lodestar::IdOf(
            static_cast<int64_t>(std::pow(static_cast<double>(rows), u))));
      }
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    }
    std::shuffle(ids.begin(), ids.end(), rng);
    return ids;
  };
  std::vector<std::vector<int64_t>> batches(64);
  for (auto& ids : batches) ids = batch();
  std::vector<lodestar::RowRef> refs(kBatch);
  std::vector<double> shares;
  double slowest = 0;
  double step_seconds = 0;
  for (int run = 0; run <= kRuns; ++run) {
    double total = 0;
    double evicting = 0;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<int64_t> ids = batches[step % batches.size()];
      // One id in 64 is new.
      for (int64_t i = 0; i < kBatch / 64; ++i) {
        ids[i] = static_cast<int64_t>(rng());
      }
      const double begin = lodestar::Seconds();
      lodestar::Require(
          store->FindOrInsert(ids, lodestar::kTraining, refs, nullptr));
      lodestar::Require(store->Apply(ids, gradients.data(), "adagrad", adagrad,
                                     inits, false, lodestar::Table::kSameStep,
                                     nullptr, refs));
      const double moving = lodestar::Seconds();
      lodestar::Require(store->MoveStep(-1, {}));
      const double end = lodestar::Seconds();
      total += end - begin;
      evicting += end - moving;
      if (run > 0) slowest = std::max(slowest, end - moving);
    }
    if (run == 0) continue;  // fills the table
    shares.push_back(evicting / total);
    step_seconds = total / kSteps;
  }
  const lodestar::EmbeddingStats stats = store->Stats();
  std::printf(
      "{\"work\": \"steps that evict by %s, %lld\", \"baseline\": "
      "\"the whole step\", \"share\": %.4f, \"wanted\": 0.02, "
      "\"ms_per_step\": %.3f, \"slowest_eviction_ms\": %.2f, \"rows\": "
      "%lld, \"evicted_per_step\": %.0f, \"runs\": %d, \"checksum\": "
      "\"%016llx\"}\n",
      name, static_cast<long long>(number), lodestar::Median(shares),
      step_seconds * 1e3, slowest * 1e3, static_cast<long long>(stats.rows),
      static_cast<double>(stats.count(lodestar::Event::kEvicted)) /
          (kSteps * (kRuns + 1)),
      kRuns, static_cast<unsigned long long>(stats.rows));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  for (int64_t max_age : {1, 100, 1000}) {
    lodestar::EvictionPolicy policy;
    policy.max_age = max_age;
    MeasureSteps("max_age", policy, max_age, small);
  }
  lodestar::EvictionPolicy seldom;
  seldom.min_frequency = 2;
  MeasureSteps("min_frequency every 1000 steps", seldom, 2, small);
  lodestar::EvictionPolicy short_rows;
  short_rows.min_norm = 1e-6f;
  MeasureSteps("min_norm every 1000 steps", short_rows, 0, small);
  if (small) return 0;
  for (int64_t rows : {int64_t{100000}, int64_t{10000000}}) {
    Measure("lru", Order::kLru, rows);
    Measure("lfu", Order::kLfu, rows);
  }
  return 0;
}
