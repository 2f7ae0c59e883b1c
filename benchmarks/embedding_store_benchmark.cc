// Compares core's lookup with a plain loop (hash, probe, copy the row) on one
// thread, with 16 batches of 65,536 resident ids. Reports the median of 9
// interleaved runs. Prints one JSON line per size.
//
// Compares a training step of core in the same way: deduplicate, find, count,
// read, sum gradients, update by Adagrad. The plain loops touch the same cache
// lines, with prefetches and without locks, growth or checks, so they are the
// floor of such a step on this machine.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <random>
#include <vector>

#include "benchmarks/timing.h"
#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/embedding/embedding_gradient.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/rows/sparse_optimizer.h"

namespace {

using lodestar::IdOf;
using lodestar::Median;
using lodestar::Mix64;
using lodestar::Require;
using lodestar::Seconds;
using lodestar::Span;

constexpr int64_t kBatch = 65536;
constexpr int kBatches = 16;
constexpr int kRuns = 9;

// A training step.
constexpr int kStepDim = 32;
constexpr float kStepValue = 0.5f;
constexpr float kStepAccumulator = 0.1f;
constexpr float kStepRate = 0.01f;
constexpr float kStepEpsilon = 1e-7f;

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

  // Three runs of ids are in flight: the entries of one and the rows of the
  // next are prefetched, and the rows of the last are copied.
  void Find(Span<const int64_t> ids, float* rows) const {
    constexpr int64_t kRun = 32;
    uint64_t places[2 * kRun];
    const float* found[2 * kRun];
    const int64_t bytes = dim_ * sizeof(float);
    for (int64_t begin = 0; begin < ids.size() + 2 * kRun; begin += kRun) {
      for (int64_t i = begin; i < std::min(begin + kRun, ids.size()); ++i) {
        uint64_t* const place = &places[i % (2 * kRun)];
        *place = Mix64(static_cast<uint64_t>(ids[i])) & mask_;
        __builtin_prefetch(&entries_[*place]);
      }
      const int64_t second = begin - kRun;
      for (int64_t i = std::max<int64_t>(second, 0);
           i < std::min(second + kRun, ids.size()); ++i) {
        const uint64_t place = PlaceFrom(places[i % (2 * kRun)], ids[i]);
        const float* row = &values_[entries_[place].row * dim_];
        lodestar::PrefetchRow<0>(row, bytes);
        found[i % (2 * kRun)] = row;
      }
      const int64_t third = begin - 2 * kRun;
      for (int64_t i = std::max<int64_t>(third, 0);
           i < std::min(third + kRun, ids.size()); ++i) {
        std::memcpy(rows + i * dim_, found[i % (2 * kRun)], bytes);
      }
    }
  }

  const std::vector<float>& values() const { return values_; }

 private:
  struct Entry {
    int64_t key;
    int64_t row;
  };

  uint64_t PlaceOf(int64_t key) const {
    return PlaceFrom(Mix64(static_cast<uint64_t>(key)) & mask_, key);
  }
  uint64_t PlaceFrom(uint64_t i, int64_t key) const {
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
      "\"plain C++ loop with prefetch, hash + row copy\", \"ratio\": %.2f, "
      "\"wanted\": 0.90, "
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

// The parts of a row that a step reads and writes are next to each other, as in
// a table.
struct PlainRow {
  int64_t key;
  int64_t count;
  int64_t last_seen;
  float values[kStepDim];
  float accumulator[kStepDim];
};

// The floor of a step. Cells with load factor 1/2 lead to rows.
class PlainStep {
 public:
  explicit PlainStep(const std::vector<int64_t>& keys) {
    size_t capacity = 1;
    while (capacity < keys.size() * 2) capacity *= 2;
    mask_ = capacity - 1;
    cells_.assign(capacity, kNoCell);
    const size_t bytes = keys.size() * sizeof(PlainRow);
    rows_ = static_cast<PlainRow*>(arena_.Allocate(bytes));
    if (rows_ == nullptr) std::exit(1);
    for (size_t i = 0; i < keys.size(); ++i) {
      uint64_t cell = CellOf(keys[i]);
      while (cells_[cell] != kNoCell) cell = (cell + 1) & mask_;
      cells_[cell] = static_cast<uint32_t>(i);
      PlainRow& row = *new (rows_ + i) PlainRow{keys[i], 0, 0, {}, {}};
      std::fill_n(row.values, kStepDim, kStepValue);
      std::fill_n(row.accumulator, kStepDim, kStepAccumulator);
    }
  }

  void Run(const std::vector<int64_t>& ids, const float* gradients,
           float* out) {
    lodestar::BatchUnique(ids, nullptr, &unique_, positions_);
    const int64_t count = static_cast<int64_t>(unique_.size());
    found_.resize(count);
    Each(
        count, [&](int64_t u) { __builtin_prefetch(&cells_[Cell(u)]); },
        [&](int64_t u) { found_[u] = &rows_[cells_[Cell(u)]]; });
    Each(
        count, [&](int64_t u) { __builtin_prefetch(found_[u]); },
        [&](int64_t u) {
          for (uint64_t cell = Cell(u); found_[u]->key != unique_[u];) {
            found_[u] = &rows_[cells_[cell = (cell + 1) & mask_]];
          }
          ++found_[u]->count;
          found_[u]->last_seen = step_;
        });
    Each(
        kBatch,
        [&](int64_t i) {
          lodestar::PrefetchRow<0>(found_[positions_[i]]->values, kRowBytes);
        },
        [&](int64_t i) {
          std::memcpy(out + i * kStepDim, found_[positions_[i]]->values,
                      kRowBytes);
        });
    sums_.assign(count * kStepDim, 0.0f);
    for (int64_t i = 0; i < kBatch; ++i) {
      float* const sum = &sums_[positions_[i] * kStepDim];
      for (int c = 0; c < kStepDim; ++c) sum[c] += gradients[i * kStepDim + c];
    }
    Each(
        count,
        [&](int64_t u) {
          lodestar::PrefetchRow<1>(found_[u]->values, 2 * kRowBytes);
        },
        [&](int64_t u) {
          const float* const sum = &sums_[u * kStepDim];
          PlainRow& row = *found_[u];
          for (int c = 0; c < kStepDim; ++c) {
            row.accumulator[c] += sum[c] * sum[c];
            row.values[c] -= kStepRate * sum[c] /
                             std::sqrt(row.accumulator[c] + kStepEpsilon);
          }
        });
    ++step_;
  }

 private:
  static constexpr uint32_t kNoCell = 0xffffffff;
  static constexpr int64_t kRowBytes = kStepDim * sizeof(float);

  uint64_t CellOf(int64_t key) const {
    return Mix64(static_cast<uint64_t>(key)) & mask_;
  }
  uint64_t Cell(int64_t u) const { return CellOf(unique_[u]); }

  template <typename Load, typename Visit>
  static void Each(int64_t count, const Load& load, const Visit& visit) {
    constexpr int64_t kAhead = 24;
    for (int64_t i = 0; i < std::min(kAhead, count); ++i) load(i);
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) load(i + kAhead);
      visit(i);
    }
  }

  uint64_t mask_ = 0;
  int64_t step_ = 0;
  std::vector<uint32_t> cells_;
  lodestar::Arena arena_;  // in huge pages, like a table's rows
  PlainRow* rows_ = nullptr;
  std::vector<int64_t> unique_;
  std::vector<int64_t> positions_ = std::vector<int64_t>(kBatch);
  std::vector<PlainRow*> found_;
  std::vector<float> sums_;
};

// Batches by Zipf's law with exponent 1.05, as in training_benchmark.
std::vector<std::vector<int64_t>> ZipfBatches(
    const std::vector<int64_t>& keys) {
  std::vector<double> sums;
  double sum = 0;
  for (size_t k = 1; k <= keys.size(); ++k) {
    sums.push_back(sum += std::pow(static_cast<double>(k), -1.05));
  }
  std::mt19937_64 rng(5);
  std::uniform_real_distribution<double> uniform(0, sum);
  std::vector<std::vector<int64_t>> batches(kBatches);
  for (auto& batch : batches) {
    for (int64_t i = 0; i < kBatch; ++i) {
      const auto found =
          std::lower_bound(sums.begin(), sums.end(), uniform(rng));
      batch.push_back(keys[found - sums.begin()]);
    }
  }
  return batches;
}

void CompareSteps(int64_t count) {
  const std::vector<int64_t> keys = Ids(count);
  PlainStep plain(keys);
  const auto store = lodestar::NewStore(kStepDim, "zeros");
  lodestar::SparseOptimizer rule;
  const std::vector<float> numbers = {kStepRate, 0, kStepEpsilon};
  const std::vector<float> inits = {kStepAccumulator};
  Require(lodestar::SparseOptimizer::Create("adagrad", numbers, &rule));
  const std::vector<float> values(count * kStepDim, kStepValue);
  // Rows have slots from the start, as in training.
  Require(store->Apply({}, nullptr, "adagrad", rule, inits, false, -1, nullptr,
                       {}));
  Require(store->InsertOrAssign(keys, values.data(), nullptr));
  const auto batches = ZipfBatches(keys);
  std::vector<float> gradients(kBatch * kStepDim, 0.01f);
  std::vector<float> rows(kBatch * kStepDim);
  std::vector<float> plain_rows(kBatch * kStepDim);
  std::vector<float> sums(kBatch * kStepDim);
  std::vector<int64_t> unique;
  std::vector<int64_t> positions(kBatch);
  std::vector<lodestar::RowRef> refs;
  const auto step = [&](const std::vector<int64_t>& ids) {
    lodestar::BatchUnique(ids, nullptr, &unique, positions);
    const int64_t count = static_cast<int64_t>(unique.size());
    refs.resize(count);
    const lodestar::EmbeddingStore::TableIds table = {
        store.get(), unique, refs, nullptr, {}, rows.data(), positions, {}};
    Require(lodestar::EmbeddingStore::FindOrInsert(
        {&table, 1}, lodestar::kTraining, nullptr));
    lodestar::SumByPosition(gradients.data(), positions, count, kStepDim,
                            sums.data(), nullptr);
    Require(store->Apply(unique, sums.data(), "adagrad", rule, inits, false, -1,
                         nullptr, refs));
  };
  CompareCalls(
      "training step, 65,536 zipf(1.05) x 32, Adagrad, one thread",
      "plain C++ loops over the same cache lines", 0.85, kBatch,
      [&] {
        const double begin = Seconds();
        for (const auto& batch : batches) step(batch);
        return (Seconds() - begin) / kBatches;
      },
      [&] {
        const double begin = Seconds();
        for (const auto& batch : batches) {
          plain.Run(batch, gradients.data(), plain_rows.data());
        }
        return (Seconds() - begin) / kBatches;
      });
  for (size_t i = 0; i < rows.size(); ++i) {
    if (std::abs(rows[i] - plain_rows[i]) <= 1e-4f) continue;
    std::fprintf(stderr, "the plain step gives another result\n");
    std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--small") == 0) {
    Compare(10000, 32);
    CompareSteps(20000);
    return 0;
  }
  for (const auto& [count, dim] :
       {std::pair<int64_t, int>{1000000, 32}, {5000000, 32}, {20000000, 8}}) {
    Compare(count, dim);
  }
  CompareSteps(1000000);
  return 0;
}
