// Updates of several tables in one call.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/testing/stores.h"
#include "tests/core/testing/threads.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

// A table and its update.
struct Table {
  Table(int dim, int64_t count, RowType type = RowType::kFloat32)
      : store(StoreOf(dim, 4, InitializerOf(), {}, type)),
        ids(count),
        gradients(count * dim) {
    std::iota(ids.begin(), ids.end(), int64_t{-3});
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>(i % 17) - 8.0f;
    }
    FindOrInsert(store.get(), ids);
  }
  EmbeddingStore::UniqueUpdate Update(const std::string& name) {
    const std::vector<float> h = {0.1f, 0.0f, 1e-7f};
    EXPECT_TRUE(SparseOptimizer::Create(
                    name, Span<const float>(h.data(), name == "sgd" ? 2 : 3),
                    &optimizer)
                    .ok());
    EmbeddingStore::UniqueUpdate update;
    update.store = store.get();
    update.unique_ids = ids;
    update.gradients = gradients.data();
    update.name = name;
    update.optimizer = &optimizer;
    if (name != "sgd") update.slot_inits = inits;
    update.next_step = -1;
    return update;
  }
  std::vector<char> Rows() const {
    std::vector<char> rows(ids.size() * store->row_bytes());
    store->Find(ids, nullptr, Missing(), rows.data(), nullptr, nullptr);
    return rows;
  }

  std::unique_ptr<EmbeddingStore> store;
  std::vector<int64_t> ids;
  std::vector<float> gradients;
  SparseOptimizer optimizer;
  const std::vector<float> inits = {0.1f};
};

TEST(EmbeddingStoreApplyTest, SeveralTablesUpdateIndependently) {
  for (int threads : {1, 3}) {
    const ParallelFor parallel = Threads(threads);
    Table tables[] = {{5, 300},
                      {2, 0},
                      {1, 1},
                      {8, 77, RowType::kBFloat16},
                      {1030, 9, RowType::kFloat16}};
    Table alone[] = {{5, 300},
                     {2, 0},
                     {1, 1},
                     {8, 77, RowType::kBFloat16},
                     {1030, 9, RowType::kFloat16}};
    const std::string names[] = {"adagrad", "sgd", "sgd", "row_wise_adagrad",
                                 "row_wise_adagrad"};
    std::vector<EmbeddingStore::UniqueUpdate> updates;
    for (int t = 0; t < 5; ++t) {
      updates.push_back(tables[t].Update(names[t]));
      const auto update = alone[t].Update(names[t]);
      ASSERT_TRUE(EmbeddingStore::Apply({&update, 1}, nullptr).ok());
    }
    updates[2].next_step = 9;
    ASSERT_TRUE(EmbeddingStore::Apply(updates, &parallel).ok());
    for (int t = 0; t < 5; ++t) {
      EXPECT_EQ(tables[t].Rows(), alone[t].Rows()) << t;
      EXPECT_EQ(tables[t].store->step(), t == 2 ? 9 : 1) << t;
    }
  }
}

TEST(EmbeddingStoreApplyTest, NoTablesIsANoOp) {
  EXPECT_TRUE(EmbeddingStore::Apply({}, nullptr).ok());
}

TEST(EmbeddingStoreApplyTest, AnErrorInOneTableChangesNone) {
  Table tables[] = {{5, 30}, {2, 10}};
  const auto bind = tables[1].Update("adagrad");
  ASSERT_TRUE(EmbeddingStore::Apply({&bind, 1}, nullptr).ok());
  const std::vector<char> before[] = {tables[0].Rows(), tables[1].Rows()};
  std::vector<EmbeddingStore::UniqueUpdate> updates = {
      tables[0].Update("adagrad"), tables[1].Update("sgd")};
  int64_t failed = 0;
  EXPECT_EQ(EmbeddingStore::Apply(updates, nullptr, &failed).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(failed, 1);
  updates[1] = tables[1].Update("adagrad");
  updates[0].slot_inits = {};
  EXPECT_EQ(EmbeddingStore::Apply(updates, nullptr, &failed).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(failed, 0);
  for (int t = 0; t < 2; ++t) EXPECT_EQ(tables[t].Rows(), before[t]) << t;
  EXPECT_EQ(tables[0].store->step(), 0);
}

// A table of two rows that raises when full, or an unlimited empty table.
std::unique_ptr<EmbeddingStore> NewStore(bool full) {
  TablePolicies policies;
  policies.eviction.max_rows = full ? 2 : 0;
  policies.eviction.raise_when_full = full;
  return StoreOf(2, 4, RowInitializer(), policies);
}

EmbeddingStore::UniqueUpdate NewRows(EmbeddingStore* store,
                                     const std::vector<int64_t>& ids,
                                     const std::vector<float>& gradients,
                                     const SparseOptimizer& sgd) {
  EmbeddingStore::UniqueUpdate update;
  update.store = store;
  update.unique_ids = ids;
  update.gradients = gradients.data();
  update.name = "sgd";
  update.optimizer = &sgd;
  update.create_missing = true;
  update.next_step = -1;
  return update;
}

// Made before all other tables of the process.
const std::unique_ptr<EmbeddingStore> first_store = NewStore(false);

TEST(EmbeddingStoreApplyTest, NoStoreHasMadeAnEmptyPlan) {
  LookupPlan plan;
  plan.refs.resize(3);
  EXPECT_TRUE(first_store->RefsOf(plan).empty());
  EXPECT_TRUE(NewStore(false)->RefsOf(plan).empty());
  plan = first_store->PlanOf(plan.refs);
  EXPECT_EQ(first_store->RefsOf(plan).size(), 3);
  EXPECT_TRUE(NewStore(false)->RefsOf(plan).empty());
}

TEST(EmbeddingStoreApplyTest, AFullTableLeavesTheOthersAsTheyWere) {
  const std::vector<int64_t> ids = {4, 5, 6};
  const std::vector<float> gradients(6, 1.0f);
  const SparseOptimizer sgd = OptimizerOf("sgd", {0.5f, 0.0f});
  // Tables are locked in the order of their addresses.
  for (int full : {0, 1}) {
    std::unique_ptr<EmbeddingStore> stores[2];
    for (int t = 0; t < 2; ++t) stores[t] = NewStore(t == full);
    std::vector<EmbeddingStore::UniqueUpdate> updates;
    for (const auto& store : stores) {
      updates.push_back(NewRows(store.get(), ids, gradients, sgd));
    }
    int64_t failed = -1;
    EXPECT_EQ(EmbeddingStore::Apply(updates, nullptr, &failed).code(),
              StatusCode::kFailedPrecondition);
    EXPECT_EQ(failed, full);
    for (const auto& store : stores) {
      EXPECT_EQ(store->size(), 0);
      EXPECT_EQ(store->step(), 0);
      EXPECT_EQ(store->Stats().count(Event::kInserts), 0);
      EXPECT_EQ(Export(*store).optimizer.name, "");
    }
    const Span<const int64_t> fit(ids.data(), 2);
    updates[full].unique_ids = fit;
    EXPECT_TRUE(EmbeddingStore::Apply(updates, nullptr, &failed).ok());
    EXPECT_EQ(stores[full]->size(), 2);
    EXPECT_EQ(stores[1 - full]->size(), 3);
  }
}

TEST(EmbeddingStoreApplyTest, CallsMayNameTheirTablesInAnyOrder) {
  const std::vector<float> gradients(2, 1.0f);
  const SparseOptimizer sgd = OptimizerOf("sgd", {0.5f, 0.0f});
  const std::unique_ptr<EmbeddingStore> stores[] = {NewStore(false),
                                                    NewStore(false)};
  constexpr int kCalls = 300;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t call = 0; call < kCalls; ++call) {
        const std::vector<int64_t> ids = {call * 3 + thread};
        EmbeddingStore* const first = stores[thread % 2].get();
        EmbeddingStore* const second = stores[1 - thread % 2].get();
        const std::vector<EmbeddingStore::UniqueUpdate> updates = {
            NewRows(first, ids, gradients, sgd),
            NewRows(second, ids, gradients, sgd)};
        EXPECT_TRUE(EmbeddingStore::Apply(updates, nullptr).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& store : stores) EXPECT_EQ(store->size(), 3 * kCalls);
}

}  // namespace
}  // namespace lodestar
