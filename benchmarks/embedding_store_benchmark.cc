// Compares core's lookup with a plain loop (hash, probe, copy the row) on one
// thread, with 16 batches of 65,536 resident ids. Reports the median of 9
// interleaved runs. Prints one JSON line per size.
//
// Also compares the first call of a table with calls that do the same work in
// CPU time. One call that adds 4M rows splits every leaf of the index many
// times; the baseline adds 65,536 rows per call. The first call that counts in
// a sketch of 2^30 counters allocates them; the baseline fills them with zeros.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "benchmarks/timing.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace {

using lodestar::CpuSeconds;
using lodestar::IdOf;
using lodestar::Median;
using lodestar::Mix64;
using lodestar::Require;
using lodestar::Seconds;
using lodestar::Span;
using lodestar::TablePolicies;

constexpr int64_t kBatch = 65536;
constexpr int kBatches = 16;
constexpr int kRuns = 9;

// A hand-written baseline: {key, row} pairs with load factor 1/2 and rows in
// one array; all ids are resident.
class PlainTable {
 public:
  PlainTable(const std::vector<int64_t>& keys, int dim)
      : dim_(dim), values_(keys.size() * dim) {
    uint64_t capacity = 1;
    while (capacity < keys.size() * 2) capacity *= 2;
    mask_ = capacity - 1;
    entries_.assign(capacity, {std::numeric_limits<int64_t>::min(), 0});
    for (size_t i = 0; i < keys.size(); ++i) {
      entries_[PlaceOf(keys[i])] = {keys[i], static_cast<int64_t>(i)};
      for (int c = 0; c < dim; ++c) {
        values_[i * dim + c] = static_cast<float>(i + c);
      }
    }
  }

  void Find(Span<const int64_t> ids, float* rows) const {
    for (int64_t i = 0; i < ids.size(); ++i) {
      std::memcpy(rows + i * dim_,
                  &values_[entries_[PlaceOf(ids[i])].row * dim_],
                  dim_ * sizeof(float));
    }
  }

  const std::vector<float>& values() const { return values_; }

 private:
  struct Entry {
    int64_t key;
    int64_t row;
  };

  uint64_t PlaceOf(int64_t key) const {
    uint64_t i = Mix64(static_cast<uint64_t>(key)) & mask_;
    while (entries_[i].key != key &&
           entries_[i].key != std::numeric_limits<int64_t>::min()) {
      i = (i + 1) & mask_;
    }
    return i;
  }

  const int dim_;
  uint64_t mask_ = 0;
  std::vector<Entry> entries_;
  std::vector<float> values_;
};

void Compare(int64_t count, int dim) {
  std::vector<int64_t> keys(count);
  for (int64_t i = 0; i < count; ++i) {
    keys[i] =
        static_cast<int64_t>(static_cast<uint64_t>(i) * lodestar::kGoldenGamma);
  }
  const PlainTable plain(keys, dim);
  const auto store = lodestar::NewStore(dim, "zeros");
  lodestar::Require(
      store->InsertOrAssign(keys, plain.values().data(), nullptr));
  std::mt19937_64 rng(1);
  std::vector<std::vector<int64_t>> batches(kBatches);
  for (auto& batch : batches) {
    for (int64_t i = 0; i < kBatch; ++i) batch.push_back(keys[rng() % count]);
  }
  std::vector<float> rows(kBatch * dim);
  std::vector<float> plain_rows(kBatch * dim);
  std::vector<double> times[2];
  for (int run = 0; run <= kRuns; ++run) {
    double begin = Seconds();
    for (const auto& batch : batches) {
      store->Find(batch, nullptr, lodestar::Missing(), rows.data(), nullptr,
                  nullptr);
    }
    const double ours = Seconds() - begin;
    begin = Seconds();
    for (const auto& batch : batches) plain.Find(batch, plain_rows.data());
    const double theirs = Seconds() - begin;
    if (run == 0) continue;
    times[0].push_back(ours / kBatches);
    times[1].push_back(theirs / kBatches);
  }
  if (rows != plain_rows) {
    std::fprintf(stderr, "the plain loop gives another result\n");
    std::exit(1);
  }
  uint64_t sum = 0;
  for (float x : rows) sum = sum * 31 + static_cast<uint64_t>(x);
  const double ours = Median(times[0]);
  const double theirs = Median(times[1]);
  std::printf(
      "{\"work\": \"lookup, %lld of %lld x %d, one thread\", \"baseline\": "
      "\"plain C++ loop, hash + row copy\", \"ratio\": %.2f, \"wanted\": 0.85, "
      "\"ns_per_item\": %.1f, \"baseline_ns_per_item\": %.1f, \"runs\": %d, "
      "\"checksum\": \"%016llx\"}\n",
      static_cast<long long>(kBatch), static_cast<long long>(count), dim,
      theirs / ours, ours / kBatch * 1e9, theirs / kBatch * 1e9, kRuns,
      static_cast<unsigned long long>(sum));
  std::fflush(stdout);
}

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
void CompareCalls(const char* work, const char* name, double wanted,
                  int64_t items, const Ours& ours, const Baseline& baseline) {
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

void CompareFirstCalls(bool small) {
  const int64_t rows = kBatch * (small ? 4 : 64);
  const std::vector<int64_t> ids = Ids(rows);
  CompareCalls(
      small ? "first lookup, adds 256k rows" : "first lookup, adds 4M rows",
      "65,536 rows per lookup", 0.8, rows,
      [&] { return SecondsOfLookups(ids, rows, rows, TablePolicies()); },
      [&] { return SecondsOfLookups(ids, kBatch, rows, TablePolicies()); });
  constexpr int64_t kCounted = 1000;
  const int64_t counters = int64_t{1} << (small ? 26 : 30);
  const std::vector<int64_t> few = Ids(kCounted);
  CompareCalls(
      small ? "first lookup, counts 1,000 ids in a sketch of 2^26 counters"
            : "first lookup, counts 1,000 ids in a sketch of 2^30 counters",
      "filling the counters with zeros", small ? 0.5 : 10, kCounted,
      [&] { return SecondsOfLookups(few, kCounted, 0, Sketch(counters)); },
      [&] {
        const double begin = CpuSeconds();
        const std::vector<char> zeros(counters);
        if (zeros[few[1] & (counters - 1)] != 0) std::exit(1);
        return CpuSeconds() - begin;
      });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--small") == 0) {
    Compare(10000, 32);
    CompareFirstCalls(/*small=*/true);
    return 0;
  }
  for (const auto& [count, dim] :
       {std::pair<int64_t, int>{1000000, 32}, {5000000, 32}, {20000000, 8}}) {
    Compare(count, dim);
  }
  CompareFirstCalls(/*small=*/false);
  return 0;
}
