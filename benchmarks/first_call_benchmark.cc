// Compares the first call of a table with calls that do the same work without
// its peculiarity, on one thread. One call that adds 4M rows splits every leaf
// of the index many times; the baseline adds 65,536 rows per call. The first
// call that counts in a sketch of 2^30 counters allocates them; the baseline
// allocates 2^16. Reports the median of 9 interleaved runs. Prints one JSON
// line per kind of call.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "benchmarks/timing.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace {

using lodestar::CpuSeconds;
using lodestar::EmbeddingStore;
using lodestar::IdOf;
using lodestar::Median;
using lodestar::Require;
using lodestar::Span;
using lodestar::TablePolicies;

constexpr int kRuns = 9;

std::vector<int64_t> Ids(int64_t count) {
  std::vector<int64_t> ids(count);
  for (int64_t k = 0; k < count; ++k) ids[k] = IdOf(k);
  return ids;
}

double SecondsOfLookups(const std::vector<int64_t>& ids, int64_t per_call,
                        int64_t rows, const TablePolicies& policies) {
  const auto store = lodestar::NewStore(1, "zeros", policies);
  std::vector<lodestar::RowRef> refs(per_call);
  const int64_t total = static_cast<int64_t>(ids.size());
  const double begin = CpuSeconds();
  for (int64_t first = 0; first < total; first += per_call) {
    Require(store->FindOrInsert({ids.data() + first, per_call},
                                lodestar::kTraining, refs, nullptr));
  }
  const double seconds = CpuSeconds() - begin;
  if (store->size() != rows) std::exit(1);
  return seconds;
}

template <typename Ours, typename Baseline>
void Compare(const char* work, const char* name, double wanted, int64_t items,
             const Ours& ours, const Baseline& baseline) {
  std::vector<double> times[2];
  for (int run = 0; run <= kRuns; ++run) {
    const double our_time = ours();
    const double baseline_time = baseline();
    if (run == 0) continue;
    times[0].push_back(our_time);
    times[1].push_back(baseline_time);
  }
  const double our_time = Median(times[0]);
  const double baseline_time = Median(times[1]);
  std::printf(
      "{\"work\": \"%s\", \"baseline\": \"%s\", \"ratio\": %.2f, "
      "\"wanted\": %.2f, \"ns_per_item\": %.1f, \"baseline_ns_per_item\": "
      "%.1f, \"runs\": %d, \"checksum\": \"%016llx\"}\n",
      work, name, baseline_time / our_time, wanted, our_time / items * 1e9,
      baseline_time / items * 1e9, kRuns,
      static_cast<unsigned long long>(items));
  std::fflush(stdout);
}

TablePolicies Sketch(int64_t counters) {
  TablePolicies policies;
  policies.admission.kind = lodestar::AdmissionPolicy::Kind::kCountingBloom;
  policies.admission.min_count = 2;
  policies.admission.num_counters = counters;
  policies.admission.num_hashes = 3;
  return policies;
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  const int64_t per_call = 65536;
  const int64_t rows = per_call * (small ? 4 : 64);
  const std::vector<int64_t> ids = Ids(rows);
  Compare(
      small ? "first lookup, adds 256k rows" : "first lookup, adds 4M rows",
      "65,536 rows per lookup", 0.8, rows,
      [&] { return SecondsOfLookups(ids, rows, rows, TablePolicies()); },
      [&] { return SecondsOfLookups(ids, per_call, rows, TablePolicies()); });
  constexpr int64_t kCounted = 1000;
  const std::vector<int64_t> few = Ids(kCounted);
  Compare(
      "first lookup, counts 1,000 ids in a sketch of 2^30 counters",
      "in a sketch of 2^16 counters", 0.1, kCounted,
      [&] {
        return SecondsOfLookups(few, kCounted, 0, Sketch(int64_t{1} << 30));
      },
      [&] { return SecondsOfLookups(few, kCounted, 0, Sketch(1 << 16)); });
  return 0;
}
