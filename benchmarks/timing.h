// Shared by the benchmarks of core: clocks, medians and tables.

#ifndef LODESTAR_BENCHMARKS_TIMING_H_
#define LODESTAR_BENCHMARKS_TIMING_H_

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

// Ends the program with the error message.
inline void Require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

inline double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// CPU time of this thread, which is less affected by other processes.
inline double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The k-th id of a scattered sequence.
inline int64_t IdOf(int64_t k) {
  return static_cast<int64_t>(Mix64(static_cast<uint64_t>(k)));
}

// A training lookup: creates rows and counts occurrences.
inline constexpr EmbeddingStore::LookupOptions kTraining = {
    /*insert=*/true,
    /*count_frequency=*/true};

// A table of 16 shards with rows initialized by zeros or 'uniform'.
inline std::unique_ptr<EmbeddingStore> NewStore(
    int dim, const char* initial, const TablePolicies& policies = {}) {
  RowInitializer initializer;
  std::unique_ptr<EmbeddingStore> store;
  Require(RowInitializer::Create(initial, -0.05f, 0.05f, 1, 2, &initializer));
  Require(EmbeddingStore::Create(dim, 16, initializer, &store, policies));
  return store;
}

// An Adagrad update. Without ids it attaches the optimizer.
class Adagrad {
 public:
  Adagrad() { Require(SparseOptimizer::Create("adagrad", numbers_, &rule_)); }

  void Apply(Span<const int64_t> ids, const float* gradients,
             EmbeddingStore* store) const {
    Require(store->Apply(ids, gradients, "adagrad", rule_, inits_, false, -1,
                         nullptr));
  }

 private:
  const std::vector<float> numbers_ = {0.01f, 0.0f, 1e-7f};
  const std::vector<float> inits_ = {0.1f};
  SparseOptimizer rule_;
};

}  // namespace lodestar

#endif  // LODESTAR_BENCHMARKS_TIMING_H_
