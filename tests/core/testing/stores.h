// Tables, and what makes them, in one expression.

#ifndef LODESTAR_TESTS_CORE_TESTING_STORES_H_
#define LODESTAR_TESTS_CORE_TESTING_STORES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
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

// Looks up unique ids as a training step does.
constexpr LookupOptions kTraining = {/*insert=*/true, /*count_frequency=*/true};
inline std::vector<RowRef> FindOrInsert(
    EmbeddingStore* store, const std::vector<int64_t>& ids,
    const LookupOptions& options = kTraining,
    const ParallelFor* parallel = nullptr) {
  std::vector<RowRef> refs(ids.size());
  EXPECT_TRUE(store->FindOrInsert(ids, options, refs, parallel).ok());
  return refs;
}

// An optimizer with its hyperparameters and the initial values of its slots.
struct Rule {
  std::string name;
  std::vector<float> numbers;
  std::vector<float> inits = {};
};

// Updates unique ids, and moves the step by one.
inline Status Apply(EmbeddingStore* store, const std::vector<int64_t>& ids,
                    const std::vector<float>& gradients, const Rule& rule,
                    bool create_missing = false,
                    const ParallelFor* parallel = nullptr) {
  return store->Apply(ids, gradients.data(), rule.name,
                      OptimizerOf(rule.name, rule.numbers), rule.inits,
                      create_missing, -1, parallel);
}

inline int64_t Remove(EmbeddingStore* store, const std::vector<int64_t>& ids) {
  int64_t removed = 0;
  EXPECT_TRUE(store->Remove(ids, &removed, {}).ok());
  return removed;
}

inline EmbeddingRows Export(const EmbeddingStore& store) {
  EmbeddingRows rows;
  EXPECT_TRUE(store.Export(true, &rows, nullptr).ok());
  return rows;
}

inline void ExpectEqual(const EmbeddingRows& rows,
                        const EmbeddingRows& wanted) {
  EXPECT_EQ(rows.ids, wanted.ids);
  EXPECT_TRUE(rows.values == wanted.values);
  EXPECT_TRUE(rows.slots == wanted.slots);
  EXPECT_EQ(rows.frequencies, wanted.frequencies);
  EXPECT_EQ(rows.last_seen, wanted.last_seen);
  EXPECT_EQ(rows.optimizer.name, wanted.optimizer.name);
  EXPECT_EQ(rows.optimizer.slot_names, wanted.optimizer.slot_names);
  EXPECT_EQ(rows.optimizer.slot_inits, wanted.optimizer.slot_inits);
  EXPECT_EQ(rows.step, wanted.step);
  EXPECT_EQ(rows.seed, wanted.seed);
  EXPECT_EQ(rows.salt, wanted.salt);
  EXPECT_EQ(rows.own_step, wanted.own_step);
  EXPECT_EQ(rows.pending_ids, wanted.pending_ids);
  EXPECT_EQ(rows.pending_sightings, wanted.pending_sightings);
  EXPECT_EQ(rows.pending_last_seen, wanted.pending_last_seen);
  EXPECT_EQ(rows.sketch, wanted.sketch);
  EXPECT_TRUE(rows.shared_values == wanted.shared_values);
  EXPECT_TRUE(rows.shared_slots == wanted.shared_slots);
}

inline std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> ids(end - begin);
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
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
