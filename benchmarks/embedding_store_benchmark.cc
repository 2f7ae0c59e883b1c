// Compares core's lookup with a plain loop (hash, probe, copy the row) on one
// thread, with 16 batches of 65,536 resident ids. Reports the median of 9
// interleaved runs. Prints one JSON line per size.

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

using lodestar::Median;
using lodestar::Mix64;
using lodestar::Seconds;
using lodestar::Span;

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

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--small") == 0) {
    Compare(10000, 32);
    return 0;
  }
  for (const auto& [count, dim] :
       {std::pair<int64_t, int>{1000000, 32}, {5000000, 32}, {20000000, 8}}) {
    Compare(count, dim);
  }
  return 0;
}
