// Cost of eviction: a table at its cap looks up batches of 4,096 new ids and
// evicts as many rows, with 0.1M and 10M rows, compared with the same lookups
// without a cap. One thread, dim 8. Prints one JSON line per policy and size:
// nanoseconds per id, and the slowest calls.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "benchmarks/timing.h"
#include "tf_ops/core/embedding/embedding_store.h"

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

}  // namespace

int main() {
  for (int64_t rows : {int64_t{100000}, int64_t{10000000}}) {
    Measure("lru", Order::kLru, rows);
    Measure("lfu", Order::kLfu, rows);
  }
  return 0;
}
