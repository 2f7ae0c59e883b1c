// Shared rows: read and trained by ids without a row.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/embedding/embedding_policies.h"
#include "tests/core/testing/errors.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/embedding/shared_rows.h"

namespace lodestar {
namespace {

// Calls for ids without a row.
class SharedRowsTest : public testing::Test {
 protected:
  static constexpr int64_t kShared = 3;

  static std::unique_ptr<EmbeddingStore> Make(int64_t shards = 4,
                                              int64_t shared = kShared) {
    TablePolicies policies = MinCount(2);
    policies.shared_rows = shared;
    return MakeStore(policies, shards);
  }
  static std::vector<float> Read(const EmbeddingStore& store, int64_t id) {
    Missing missing;
    missing.kind = Missing::Kind::kShared;
    std::vector<float> row(kDim);
    const std::vector<int64_t> ids = {id};
    store.Find(ids, nullptr, missing, row.data(), nullptr, nullptr);
    return row;
  }
  static Status Adagrad(EmbeddingStore* store, const std::vector<int64_t>& ids,
                        const std::vector<float>& gradients,
                        const ParallelFor* parallel = nullptr) {
    const Rule adagrad = {"adagrad", {0.5f, 0.0f, 1e-7f}, {0.1f}};
    return Apply(store, ids, gradients, adagrad, false, parallel);
  }
  static Status Lion(EmbeddingStore* store, const std::vector<int64_t>& ids,
                     const std::vector<float>& gradients) {
    return Apply(store, ids, gradients,
                 {"lion", {0.5f, 0.0f, 0.9f, 0.1f, 0.99f, 0.01f}, {0.0f}});
  }
};

TEST_F(SharedRowsTest, IdsWithoutARowReadAndTrainTheirShare) {
  auto store = Make();
  std::map<uint64_t, std::vector<float>> first;
  for (int64_t id = -20; id < 20; ++id) {
    const auto [it, is_new] =
        first.emplace(Mixed(id) % kShared, Read(*store, id));
    EXPECT_EQ(it->second, Read(*store, id));
  }
  EXPECT_EQ(first.size(), 3u);
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(store->size(), 0);
  // Sums in batch order: 1e8 + 1 - 1e8 in float is 0; in another order it is 1.
  std::vector<int64_t> ids;
  for (int64_t id = 0; ids.size() < 3; ++id) {
    if (Mixed(id) % kShared == 1) ids.push_back(id);
  }
  std::vector<float> gradients = {1e8f, 0, 1, 0, -1e8f, 0};
  ASSERT_TRUE(Adagrad(store.get(), ids, gradients).ok());
  EXPECT_EQ(Read(*store, ids[0]), first[1]);
  gradients = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(Adagrad(store.get(), ids, gradients).ok());
  const std::vector<float> trained = Read(*store, ids[0]);
  EXPECT_LT(trained[0], first[1][0] - 0.1f);
  EXPECT_EQ(Read(*store, ids[2]), trained);
  EXPECT_EQ(store->Stats().count(Event::kGradientsDropped), 0);
  // Equals one gradient that is their sum.
  auto other = Make(7);
  ASSERT_TRUE(Adagrad(other.get(), {ids[1]}, {0, 0}).ok());
  ASSERT_TRUE(Adagrad(other.get(), {ids[1]}, {9, 12}).ok());
  EXPECT_EQ(Read(*other, ids[0]), trained);
  // An id with a row trains that row only.
  Lookup(store.get(), {ids[0]});
  ASSERT_TRUE(Adagrad(store.get(), {}, {}).ok());
  Lookup(store.get(), {ids[0]});
  const std::vector<float> own = Read(*store, ids[0]);
  EXPECT_NE(own, trained);
  ASSERT_TRUE(Adagrad(store.get(), {ids[0]}, {1, 1}).ok());
  EXPECT_NE(Read(*store, ids[0]), own);
  EXPECT_EQ(Read(*store, ids[1]), trained);
  ASSERT_TRUE(store->Clear({}).ok());
  EXPECT_EQ(Read(*store, ids[0]), first[1]);
}

TEST_F(SharedRowsTest, TheyAreSavedWithTheirOptimizerSlots) {
  auto from = Make();
  const std::vector<int64_t> ids = Range(0, 10);
  const std::vector<float> gradients(10 * kDim, 1.0f);
  ASSERT_TRUE(Adagrad(from.get(), ids, gradients).ok());
  const EmbeddingRows rows = Export(*from);
  EXPECT_EQ(rows.shared_values.size(), 3u * kDim);
  EXPECT_EQ(rows.shared_slots.size(), 3u * kDim);
  auto to = Make(2);
  ASSERT_TRUE(ImportInPlaceOf(&to, View(rows)).ok());
  for (EmbeddingStore* store : {from.get(), to.get()}) {
    ASSERT_TRUE(Adagrad(store, ids, gradients).ok());
  }
  EXPECT_EQ(Export(*to).shared_values, Export(*from).shared_values);
  EXPECT_EQ(Export(*to).shared_slots, Export(*from).shared_slots);
  auto fewer = Make(4, 2);
  const EmbeddingRows before = Export(*fewer);
  ExpectError(ImportInPlaceOf(&fewer, View(rows)), StatusCode::kInvalidArgument,
              {"`shared_rows` must have 4 elements, got 6"});
  EXPECT_EQ(Export(*fewer).shared_values, before.shared_values);
  auto none = MakeStore(TablePolicies());
  EXPECT_TRUE(ImportInPlaceOf(&none, View(rows)).ok());
  EXPECT_EQ(Read(*none, 5), std::vector<float>(kDim, 0.0f));
  // An import without shared rows keeps them and resets their slots.
  const EmbeddingRows trained = Export(*to);
  EmbeddingRows own = trained;
  own.shared_values = own.shared_slots = Numbers();
  ASSERT_TRUE(ImportInPlaceOf(&to, View(own)).ok());
  EXPECT_EQ(Export(*to).shared_values, trained.shared_values);
  EXPECT_EQ(Floats(Export(*to).shared_slots),
            std::vector<float>(kShared * kDim, 0.1f));
}

// Updates made while the table is built are not lost.
TEST_F(SharedRowsTest, AnImportKeepsUpdatesOfRowsItOmits) {
  auto store = Make();
  const std::vector<int64_t> ids = Range(0, 10);
  const std::vector<float> gradients(10 * kDim, 1.0f);
  ASSERT_TRUE(Adagrad(store.get(), ids, gradients).ok());
  EmbeddingRows own = Export(*store);
  own.shared_values = own.shared_slots = Numbers();
  std::unique_ptr<EmbeddingStore> table;
  ASSERT_TRUE(
      EmbeddingStore::CreateFrom(View(own), *store, nullptr, &table).ok());
  EXPECT_EQ(Export(*table).shared_values, Export(*store).shared_values);
  ASSERT_TRUE(Adagrad(store.get(), ids, gradients).ok());
  EXPECT_FALSE(Export(*table).shared_values == Export(*store).shared_values);
  ASSERT_TRUE(table->CopyLiveState(*store, View(own), {}).ok());
  EXPECT_EQ(Export(*table).shared_values, Export(*store).shared_values);
  EXPECT_EQ(Floats(Export(*table).shared_slots),
            std::vector<float>(kShared * kDim, 0.1f));
}

// Another optimizer is attached while gradients are being computed.
TEST_F(SharedRowsTest, AGradientOfAnotherOptimizerIsRefused) {
  const std::vector<int64_t> ids = Range(0, 10);
  const std::vector<float> gradients(10 * kDim, 1.0f);
  auto store = Make();
  EmbeddingRows rows;
  const ParallelFor lion_first =
      [&](int64_t total, int64_t,
          const std::function<void(int64_t, int64_t)>& body) {
        if (rows.optimizer.name.empty()) {
          ASSERT_TRUE(Lion(store.get(), ids, gradients).ok());
          rows = Export(*store);
        }
        body(0, total);
      };
  EXPECT_EQ(Adagrad(store.get(), ids, gradients, &lion_first).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(rows.optimizer.name, "lion");
  EXPECT_EQ(Export(*store).shared_values, rows.shared_values);
  EXPECT_EQ(Export(*store).shared_slots, rows.shared_slots);
}

TEST(SharedRowsAloneTest, ARowsGradientIsTheSumOverItsReaders) {
  TablePolicies policies;
  policies.shared_rows = 3;
  ShardedRows rows(2, RowType::kFloat32, 1, policies);
  OptimizerBinding binding(&rows);
  SharedRows shared(3, RowInitializer(), &rows, &binding);
  ASSERT_TRUE(shared.CreateRows().ok());
  const SharedRows::Readers readers = {{0, 1}, {0, 2}, {2, 0}};
  const float gradients[] = {1, 2, 3, 4, 5, 6};
  float sum[2];
  EXPECT_EQ(shared.Sum(readers, 0, gradients, 0, 2, sum), 2u);
  EXPECT_EQ(sum[0], 8);
  EXPECT_EQ(sum[1], 10);
  EXPECT_EQ(shared.Sum(readers, 2, gradients, 1, 1, sum), 3u);
  EXPECT_EQ(sum[0], 2);
  EXPECT_TRUE(CheckSharedRowNumber(2, 0, shared.count()).ok());
  ExpectError(CheckSharedRowNumber(3, 7, shared.count()),
              StatusCode::kInvalidArgument, {"`ids[7]` must be a shared row"});
}

// Run it with --config=tsan.
TEST_F(SharedRowsTest, AnOptimizerMayBeAttachedDuringAReset) {
  const std::vector<int64_t> ids = Range(0, 10);
  const std::vector<float> gradients(10 * kDim, 1.0f);
  for (int round = 0; round < 50; ++round) {
    auto store = Make();
    std::thread clearing([&] {
      for (int i = 0; i < 5; ++i) ASSERT_TRUE(store->Clear({}).ok());
    });
    ASSERT_TRUE(Adagrad(store.get(), ids, gradients).ok());
    clearing.join();
    ASSERT_TRUE(store->Clear({}).ok());
    EXPECT_EQ(Export(*store).shared_values, Export(*Make()).shared_values);
    EXPECT_EQ(Floats(Export(*store).shared_slots),
              std::vector<float>(kShared * kDim, 0.1f));
  }
}

}  // namespace
}  // namespace lodestar
