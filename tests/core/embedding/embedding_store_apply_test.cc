// Updates of several tables in one call.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/core/testing/threads.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

constexpr EmbeddingStore::LookupOptions kTraining = {/*insert=*/true,
                                                     /*count_frequency=*/true};

// A table and its update.
struct Table {
  Table(int dim, int64_t count, RowType type = RowType::kFloat32)
      : ids(count), gradients(count * dim), wide(count * dim) {
    RowInitializer initializer;
    EXPECT_TRUE(
        RowInitializer::Create("uniform", -1, 1, 1, 2, &initializer).ok());
    EXPECT_TRUE(
        EmbeddingStore::Create(dim, 4, initializer, &store, {}, type).ok());
    std::iota(ids.begin(), ids.end(), int64_t{-3});
    for (size_t i = 0; i < gradients.size(); ++i) {
      wide[i] = gradients[i] = static_cast<float>(i % 17) - 8.0f;
    }
    std::vector<RowRef> refs(count);
    EXPECT_TRUE(store->FindOrInsert(ids, kTraining, refs, nullptr).ok());
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
    update.gradients = store->type() == RowType::kFloat64
                           ? static_cast<const void*>(wide.data())
                           : gradients.data();
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
  std::vector<double> wide;
  SparseOptimizer optimizer;
  const std::vector<float> inits = {0.1f};
};

TEST(EmbeddingStoreApplyTest, SeveralTablesUpdateIndependently) {
  for (int threads : {1, 3}) {
    const ParallelFor parallel = Threads(threads);
    Table tables[] = {{5, 300},
                      {2, 0},
                      {1, 1},
                      {8, 77, RowType::kFloat64},
                      {1030, 9, RowType::kFloat16}};
    Table alone[] = {{5, 300},
                     {2, 0},
                     {1, 1},
                     {8, 77, RowType::kFloat64},
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

}  // namespace
}  // namespace lodestar
