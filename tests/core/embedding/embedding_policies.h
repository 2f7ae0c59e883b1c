// Test helpers for tables with admission and eviction.

#ifndef LODESTAR_TESTS_CORE_EMBEDDING_EMBEDDING_POLICIES_H_
#define LODESTAR_TESTS_CORE_EMBEDDING_EMBEDDING_POLICIES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/stores.h"
#include "tests/core/testing/threads.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

constexpr int kDim = 2;
using Order = EvictionPolicy::Order;

inline std::unique_ptr<EmbeddingStore> MakeStore(const TablePolicies& policies,
                                                 int64_t shards = 4) {
  return StoreOf(kDim, shards, InitializerOf(), policies);
}

inline TablePolicies MinCount(int64_t n) {
  TablePolicies policies;
  policies.admission.kind = AdmissionPolicy::Kind::kMinCount;
  policies.admission.min_count = n;
  return policies;
}

inline TablePolicies CountingBloom(int64_t n, int64_t counters) {
  TablePolicies policies = MinCount(n);
  policies.admission.kind = AdmissionPolicy::Kind::kCountingBloom;
  policies.admission.num_counters = counters;
  policies.admission.num_hashes = 4;
  return policies;
}

inline TablePolicies MaxRows(int64_t n, Order order = Order::kLru) {
  TablePolicies policies;
  policies.eviction.max_rows = n;
  policies.eviction.order = order;
  return policies;
}

// Looks up `ids` and returns which of them have a row afterwards.
inline std::vector<bool> Lookup(EmbeddingStore* store,
                                const std::vector<int64_t>& ids,
                                bool insert = true, bool count = true,
                                const ParallelFor* parallel = nullptr) {
  std::vector<bool> found;
  for (const RowRef& ref :
       FindOrInsert(store, ids, {insert, count}, parallel)) {
    found.push_back(ref.found());
  }
  return found;
}

inline void Advance(EmbeddingStore* store,
                    const std::vector<int64_t>& ids = {}) {
  const std::vector<float> gradients(ids.size() * kDim, 1.0f);
  ASSERT_TRUE(Apply(store, ids, gradients, {"sgd", {0.5f, 0.0f}}).ok());
}

inline uint64_t Mixed(int64_t id) { return Mix64(static_cast<uint64_t>(id)); }

inline std::vector<int64_t> ByMix(std::vector<int64_t> ids) {
  std::sort(ids.begin(), ids.end(),
            [](int64_t a, int64_t b) { return Mixed(a) < Mixed(b); });
  return ids;
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_EMBEDDING_EMBEDDING_POLICIES_H_
