// Tables, and what makes them, in one expression.

#ifndef LODESTAR_TESTS_CORE_TESTING_STORES_H_
#define LODESTAR_TESTS_CORE_TESTING_STORES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

inline RowInitializer InitializerOf(const std::string& kind = "uniform",
                                    float a = -1, float b = 1) {
  RowInitializer initializer;
  EXPECT_TRUE(RowInitializer::Create(kind, a, b, 1, 2, &initializer).ok());
  return initializer;
}

inline std::unique_ptr<EmbeddingStore> StoreOf(
    int dim, int64_t shards = 4,
    const RowInitializer& initializer = InitializerOf(),
    const TablePolicies& policies = TablePolicies(),
    RowType type = RowType::kFloat32) {
  std::unique_ptr<EmbeddingStore> store;
  EXPECT_TRUE(
      EmbeddingStore::Create(dim, shards, initializer, &store, policies, type)
          .ok());
  return store;
}

inline SparseOptimizer OptimizerOf(const std::string& name,
                                   const std::vector<float>& numbers) {
  SparseOptimizer optimizer;
  EXPECT_TRUE(SparseOptimizer::Create(name, numbers, &optimizer).ok());
  return optimizer;
}

inline std::vector<float> RowsOf(const EmbeddingStore& store,
                                 const std::vector<int64_t>& ids,
                                 const Missing& missing = Missing(),
                                 const ParallelFor* parallel = nullptr) {
  std::vector<float> rows(ids.size() * store.dim());
  store.Find(ids, nullptr, missing, rows.data(), nullptr, parallel);
  return rows;
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_STORES_H_
