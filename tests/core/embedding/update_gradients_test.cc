#include "tf_ops/core/embedding/update_gradients.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/testing/threads.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMost = std::numeric_limits<float>::max();

// A table of width 2 with rows 1 to 9, and an update by -1 times the sum.
struct Case {
  explicit Case(int64_t shared_rows = 0, RowType type = RowType::kFloat32) {
    RowInitializer zeros;
    EXPECT_TRUE(RowInitializer::Create("zeros", 0, 0, 1, 2, &zeros).ok());
    TablePolicies policies;
    policies.shared_rows = shared_rows;
    EXPECT_TRUE(
        EmbeddingStore::Create(2, 4, zeros, &store, policies, type).ok());
    const std::vector<int64_t> resident = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    std::vector<RowRef> refs(resident.size());
    LookupOptions insert;
    insert.insert = true;
    EXPECT_TRUE(store->FindOrInsert(resident, insert, refs, nullptr).ok());
  }
  TableUpdate Update() const {
    TableUpdate update;
    update.table = store.get();
    update.ids = ids;
    update.gradients = gradients.data();
    update.nonfinite = nonfinite;
    update.optimizer = "sgd";
    update.hyperparameters = sgd;
    update.next_step = -1;
    return update;
  }
  Status Run(const ParallelFor* parallel = nullptr) {
    const TableUpdate update = Update();
    int64_t failed = -1;
    const Status status = store->Update({&update, 1}, parallel, &failed);
    EXPECT_EQ(failed, status.ok() ? failed : 0);
    return status;
  }
  std::vector<float> Rows(const std::vector<int64_t>& of) const {
    std::vector<float> rows(of.size() * 2);
    store->Find(of, nullptr, Missing(), rows.data(), nullptr, nullptr);
    return rows;
  }

  std::unique_ptr<EmbeddingStore> store;
  std::vector<int64_t> ids;
  std::vector<float> gradients;
  Nonfinite nonfinite = Nonfinite::kRaise;
  const std::vector<float> sgd = {1.0f, 0.0f};
};

TEST(UpdateGradientsTest, SumsTheGradientsOfEqualIds) {
  const ParallelFor parallel = Threads(3);
  for (const ParallelFor* on : {&parallel, (const ParallelFor*)nullptr}) {
    Case c;
    c.ids = {3, 1, 3};
    c.gradients = {1, 2, 4, 8, 16, 32};
    ASSERT_TRUE(c.Run(on).ok());
    EXPECT_EQ(c.Rows({1, 2, 3}), std::vector<float>({-4, -8, 0, 0, -17, -34}));
    EXPECT_EQ(c.store->step(), 1);
  }
}

TEST(UpdateGradientsTest, UsesGradientsOfUniqueIdsInPlace) {
  Case c;
  c.ids = {3, 1};
  c.gradients = {1, 2, 4, 8};
  UniqueGradients gradients;
  gradients.Sum(c.Update(), nullptr);
  EXPECT_EQ(gradients.rows(), c.gradients.data());
  EXPECT_EQ(gradients.ids().data(), c.ids.data());
  // A plan implies that the ids are unique.
  TableUpdate update = c.Update();
  const LookupPlan plan = c.store->PlanOf(std::vector<RowRef>(2));
  update.plan = &plan;
  gradients.Sum(update, nullptr);
  EXPECT_EQ(gradients.plan(), &plan);
}

TEST(UpdateGradientsTest, RefusesSkipsOrPassesNonfiniteGradients) {
  for (const Nonfinite nonfinite :
       {Nonfinite::kRaise, Nonfinite::kSkip, Nonfinite::kPass}) {
    Case c;
    c.nonfinite = nonfinite;
    c.ids = {3, 1, 3, 2};
    c.gradients = {1, 2, 4, 8, kNan, 32, 64, 128};
    const Status status = c.Run();
    EmbeddingStats stats = c.store->Stats();
    const int64_t counted = stats.count(Event::kNonfiniteGradients);
    const std::vector<float> rows = c.Rows({1, 2, 3});
    if (nonfinite == Nonfinite::kRaise) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(std::string(status.message())
                    .find("the gradient of id 3 is not finite; no row"),
                std::string::npos);
      EXPECT_EQ(rows, std::vector<float>(6));
      EXPECT_EQ(c.store->step(), 0);
    } else if (nonfinite == Nonfinite::kSkip) {
      ASSERT_TRUE(status.ok());
      EXPECT_EQ(rows, std::vector<float>({-4, -8, -64, -128, 0, 0}));
      EXPECT_EQ(counted, 1);
    } else {
      ASSERT_TRUE(status.ok());
      EXPECT_NE(rows[4], rows[4]);
      EXPECT_EQ(counted, 0);
    }
  }
}

// Ids without a row train the shared row together.
TEST(UpdateGradientsTest, ChecksTheSumsOfSharedRows) {
  Case c(/*shared_rows=*/1);
  c.nonfinite = Nonfinite::kSkip;
  c.ids = {20, 1, 21};
  c.gradients = {kMost, 0, 1, 1, kMost, 0};
  ASSERT_TRUE(c.Run().ok());
  EXPECT_EQ(c.Rows({1}), std::vector<float>({-1, -1}));
  EXPECT_EQ(c.store->Stats().count(Event::kNonfiniteGradients), 2);
  c.nonfinite = Nonfinite::kRaise;
  EXPECT_EQ(c.Run().code(), StatusCode::kInvalidArgument);
}

TEST(UpdateGradientsTest, AnErrorOfOneTableChangesNone) {
  Case good;
  Case bad;
  good.ids = bad.ids = {1};
  good.gradients = {1, 1};
  bad.gradients = {1, kNan};
  const TableUpdate updates[] = {good.Update(), bad.Update()};
  int64_t failed = -1;
  EXPECT_FALSE(good.store->Update({updates, 2}, nullptr, &failed).ok());
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(good.Rows({1}), std::vector<float>(2));
}

TEST(UpdateGradientsTest, ChecksGradientsThatAreAdded) {
  AttachedOptimizer sgd;
  sgd.name = "sgd";
  Case c;
  c.ids = {1, 1};
  c.gradients = {kMost / 3, 0, kMost / 3, 0};
  EXPECT_TRUE(c.store->CheckUpdate(c.Update(), sgd, 0, nullptr).ok());
  // The row and the sums must stay within half of the range.
  EXPECT_EQ(c.store->CheckUpdate(c.Update(), sgd, 1, nullptr).code(),
            StatusCode::kInvalidArgument);
  c.gradients = {kMost, 0, kMost, 0};
  EXPECT_EQ(c.store->CheckUpdate(c.Update(), sgd, 0, nullptr).code(),
            StatusCode::kInvalidArgument);
  Case half(0, RowType::kFloat16);
  EXPECT_EQ(half.store->CheckUpdate(half.Update(), sgd, 1, nullptr).code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lodestar
