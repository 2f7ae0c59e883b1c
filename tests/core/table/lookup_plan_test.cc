#include "tf_ops/core/table/lookup_plan.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/core/testing/stores.h"
#include "tests/core/testing/threads.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

constexpr int kDim = 6;
std::unique_ptr<EmbeddingStore> MakeStore(const TablePolicies& policies = {}) {
  return StoreOf(kDim, 4, InitializerOf(), policies);
}

Status Update(EmbeddingStore* store, const std::vector<int64_t>& ids,
              const std::vector<float>& gradients, bool create,
              Span<const RowRef> refs, const ParallelFor* parallel = nullptr) {
  const SparseOptimizer optimizer = OptimizerOf("adagrad", {0.1f, 0.0f, 1e-7f});
  const std::vector<float> inits = {0.1f};
  return store->Apply(ids, gradients.data(), "adagrad", optimizer, inits,
                      create, -1, parallel, refs);
}

// Everything that may happen between a lookup and its update.
void Disturb(EmbeddingStore* store, const std::vector<int64_t>& ids,
             uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<int64_t> some;
  for (int64_t id : ids) {
    if (rng() % 3 == 0) some.push_back(id);
  }
  int64_t number = 0;
  const std::vector<float> rows(some.size() * kDim, 0.5f);
  switch (seed % 6) {
    case 0:
      EXPECT_TRUE(store->Remove(some, &number, {}).ok());
      break;
    case 1:
      EXPECT_TRUE(store->Remove(some, &number, {}).ok());
      EXPECT_TRUE(store->InsertOrAssign(some, rows.data(), nullptr).ok());
      break;
    case 2:
      EXPECT_TRUE(store->Remove(some, &number, {}).ok());
      EXPECT_TRUE(store->Compact(&number, {}).ok());
      break;
    case 3:
      EXPECT_TRUE(store->Clear({}).ok());
      EXPECT_TRUE(store->InsertOrAssign(some, rows.data(), nullptr).ok());
      break;
    case 4: {
      EvictionPolicy policy;
      policy.max_age = 1;
      EXPECT_TRUE(store->SetStep(store->step() + 5).ok());
      EXPECT_TRUE(store->Evict(policy, &number, nullptr).ok());
      break;
    }
    default:
      break;
  }
}

TEST(LookupPlanTest, AnUpdateFindsRowsThatMoved) {
  const ParallelFor threads = Threads(3);
  for (const bool create : {false, true}) {
    const auto known = MakeStore();
    const auto searched = MakeStore();
    std::mt19937_64 rng(1);
    for (uint64_t round = 0; round < 120; ++round) {
      std::vector<int64_t> ids;
      for (int64_t id = 0; id < 400; ++id) {
        if (rng() % 2 == 0) ids.push_back(id - 200);
      }
      std::vector<float> gradients(ids.size() * kDim);
      for (float& g : gradients) g = static_cast<float>(rng() % 100) / 100;
      std::vector<RowRef> refs(ids.size());
      for (EmbeddingStore* store : {searched.get(), known.get()}) {
        EmbeddingStore::LookupOptions options = kTraining;
        options.insert = round % 4 != 3;
        ASSERT_TRUE(store->FindOrInsert(ids, options, refs, nullptr).ok());
        Disturb(store, ids, round);
      }
      ASSERT_TRUE(
          Update(searched.get(), ids, gradients, create, {}, &threads).ok());
      ASSERT_TRUE(
          Update(known.get(), ids, gradients, create, refs, &threads).ok());
      const EmbeddingStats stats = known->Stats();
      ASSERT_EQ(stats.events, searched->Stats().events) << round;
      std::vector<int64_t> all(400);
      for (int64_t i = 0; i < 400; ++i) all[i] = i - 200;
      InspectedIds found, wanted;
      ASSERT_TRUE(known->Inspect(all, &found, {}).ok());
      ASSERT_TRUE(searched->Inspect(all, &wanted, {}).ok());
      ASSERT_EQ(found.states, wanted.states) << round;
      ASSERT_TRUE(found.values == wanted.values) << round;
      ASSERT_TRUE(found.slots == wanted.slots) << round;
    }
  }
}

TEST(LookupPlanTest, NoUpdateIsLostWhileRowsMove) {
  const auto store = MakeStore();
  constexpr int64_t kIds = 300;
  std::vector<int64_t> ids(kIds);
  for (int64_t i = 0; i < kIds; ++i) ids[i] = i;
  const std::vector<float> zeros(kIds * kDim, 0.0f);
  ASSERT_TRUE(store->InsertOrAssign(ids, zeros.data(), nullptr).ok());
  constexpr int kCallers = 3;
  constexpr int kRounds = 100;
  std::atomic<int> left{kCallers};
  std::vector<std::thread> callers;
  for (int t = 0; t < kCallers; ++t) {
    callers.emplace_back([&] {
      const SparseOptimizer sgd = OptimizerOf("sgd", {1.0f, 0.0f});
      const std::vector<float> gradients(kIds * kDim, -1.0f);
      for (int i = 0; i < kRounds; ++i) {
        LookupPlan plan = store->PlanOf(std::vector<RowRef>(kIds));
        ASSERT_TRUE(
            store->FindOrInsert(ids, kTraining, plan.refs, nullptr).ok());
        ASSERT_TRUE(store
                        ->Apply(ids, gradients.data(), "sgd", sgd, {}, false,
                                -1, nullptr, store->RefsOf(plan))
                        .ok());
      }
      --left;
    });
  }
  // Other rows between these are added and removed, and these are moved.
  std::vector<int64_t> others(1000);
  for (size_t i = 0; i < others.size(); ++i) others[i] = 1000 + i;
  const std::vector<float> rows(others.size() * kDim);
  for (int64_t number = 0; left > 0;) {
    ASSERT_TRUE(store->InsertOrAssign(others, rows.data(), nullptr).ok());
    ASSERT_TRUE(store->Remove(others, &number, {}).ok());
    ASSERT_TRUE(store->Compact(&number, {}).ok());
  }
  for (std::thread& caller : callers) caller.join();
  std::vector<float> values(kIds * kDim);
  store->Find(ids, nullptr, Missing(), values.data(), nullptr, nullptr);
  for (float value : values) ASSERT_EQ(value, kCallers * kRounds);
}

}  // namespace
}  // namespace lodestar
