// Rows updated outside of the store (unfused optimizers).

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/embedding/embedding_policies.h"
#include "tests/core/testing/errors.h"
#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/threads.h"
#include "tests/core/testing/updates_outside.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

void Assign(EmbeddingStore* store, const std::vector<int64_t>& ids,
            float value) {
  const std::vector<float> rows(ids.size() * kDim, value);
  ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
}

TEST(EmbeddingStoreUnfusedTest, RowsAreGatheredWithSlotsAndAssigned) {
  auto store = MakeStore(TablePolicies());
  Assign(store.get(), {1, 2, 3}, 5.0f);
  RowsOutside rows(store.get(), Unfused({"m", "v"}, {0.5f, 0.0f}));
  ASSERT_TRUE(rows.Gather({3, 9, 1}, {1, 2, 3, 4, 5, 6}).ok());
  EXPECT_EQ(rows.ids, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(rows.gradients, (std::vector<float>{1, 2, 5, 6}));
  EXPECT_EQ(rows.values, std::vector<float>(4, 5.0f));
  EXPECT_EQ(rows.slots,
            (std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f, 0, 0, 0, 0}));
  EXPECT_EQ(store->Stats().count(Event::kGradientsDropped), 1);
  rows.values = {10, 11, 12, 13};
  rows.slots = {1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_TRUE(rows.Assign(nullptr, 7).ok());
  EXPECT_TRUE(rows.changed_ids.empty());
  EXPECT_EQ(RowsOf(*store, {1, 2, 3}),
            (std::vector<float>{12, 13, 5, 5, 10, 11}));
  EXPECT_EQ(store->step(), 7);
  // A row created later starts with the initial slot values.
  Assign(store.get(), {4}, 1.0f);
  const EmbeddingRows out = Export(*store);
  EXPECT_EQ(out.optimizer.name, "replay:test");
  EXPECT_EQ(out.optimizer.slot_names, (std::vector<std::string>{"m", "v"}));
  EXPECT_EQ(Floats(out.slots),
            (std::vector<float>{3, 4, 0.5f, 0.5f, 1, 2, 0.5f, 0.5f,  //
                                7, 8, 0, 0, 5, 6, 0, 0}));
  // An export is imported into another table, where training resumes.
  auto other = MakeStore(TablePolicies(), 1);
  ASSERT_TRUE(ImportInPlaceOf(&other, View(out)).ok());
  EXPECT_EQ(Export(*other).slots, out.slots);
}

TEST(EmbeddingStoreUnfusedTest, AMergedRowWithoutSlotsResetsThem) {
  auto store = MakeStore(TablePolicies());
  Assign(store.get(), {1, 2}, 5.0f);
  RowsOutside rows(store.get(), Unfused({"m"}, {0.5f}));
  ASSERT_TRUE(rows.Gather({1, 2}, {1, 1, 1, 1}).ok());
  rows.slots.assign(4, 9.0f);
  ASSERT_TRUE(rows.Assign().ok());
  auto plain = MakeStore(TablePolicies());
  Assign(plain.get(), {2, 3}, 7.0f);
  const EmbeddingRows merged = Export(*plain);
  ASSERT_TRUE(store->Import(View(merged), nullptr).ok());
  EXPECT_EQ(Floats(Export(*store).slots),
            (std::vector<float>{9, 9, 0.5f, 0.5f, 0.5f, 0.5f}));
  // An assigned row keeps them.
  Assign(store.get(), {1}, 8.0f);
  EXPECT_EQ(Floats(Export(*store).slots)[0], 9.0f);
}

TEST(EmbeddingStoreUnfusedTest, AChangedRowIsNotWrittenButGatheredAgain) {
  auto store = MakeStore(TablePolicies());
  Assign(store.get(), {1, 2, 3}, 5.0f);
  RowsOutside rows(store.get(), Unfused());
  ASSERT_TRUE(rows.Gather({1, 2, 3}, std::vector<float>(6, 1.0f)).ok());
  Assign(store.get(), {2}, 100.0f);
  Remove(store.get(), {3});
  for (float& value : rows.values) value += 1.0f;
  ASSERT_TRUE(rows.Assign().ok());
  EXPECT_EQ(rows.changed_ids, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(RowsOf(*store, {1, 2}), (std::vector<float>{6, 6, 100, 100}));
  // Gathers again without the removed row, whose gradient is dropped now.
  EXPECT_EQ(rows.ids, (std::vector<int64_t>{2}));
  EXPECT_EQ(rows.values, std::vector<float>(2, 100.0f));
  EXPECT_EQ(store->Stats().count(Event::kGradientsDropped), 1);
  for (float& value : rows.values) value += 1.0f;
  ASSERT_TRUE(rows.Assign().ok());
  EXPECT_EQ(RowsOf(*store, {1, 2}), (std::vector<float>{6, 6, 101, 101}));
}

// Rows of one shard are often written equally many times.
TEST(EmbeddingStoreUnfusedTest, ARecreatedRowHasAnotherVersion) {
  for (const bool elsewhere : {false, true}) {
    auto store = MakeStore(TablePolicies(), 1);
    Assign(store.get(), {1}, 5.0f);
    RowsOutside rows(store.get(), Unfused());
    ASSERT_TRUE(rows.Gather({1}, {1, 1}).ok());
    Remove(store.get(), {1});
    if (elsewhere) Assign(store.get(), {2}, 3.0f);  // reuses its slot
    Assign(store.get(), {1}, 7.0f);
    rows.values = {6, 6};
    ASSERT_TRUE(rows.Assign().ok());
    EXPECT_EQ(rows.changed_ids, (std::vector<int64_t>{1}));
    EXPECT_EQ(RowsOf(*store, {1}), (std::vector<float>{7, 7}));
  }
}

TEST(EmbeddingStoreUnfusedTest, AnImportInBetweenChangesEveryRow) {
  auto store = MakeStore(TablePolicies());
  Assign(store.get(), {1, 2}, 5.0f);
  EmbeddingRows plain = Export(*store);
  RowsOutside rows(store.get(), Unfused({"m"}, {0.25f}));
  ASSERT_TRUE(rows.Gather({1, 2}, {1, 1, 1, 1}).ok());
  const EmbeddingRows bound = Export(*store);
  ASSERT_TRUE(ImportInPlaceOf(&store, View(plain)).ok());
  rows.GoTo(store.get());
  rows.slots.assign(4, 9.0f);
  ASSERT_TRUE(rows.Assign().ok());
  EXPECT_EQ(rows.changed_ids, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(rows.slots, std::vector<float>(4, 0.25f));  // attached again
  // A table with the same optimizer, whose rows have as many writes.
  ASSERT_TRUE(ImportInPlaceOf(&store, View(bound)).ok());
  auto twin = MakeStore(TablePolicies());
  ASSERT_TRUE(ImportInPlaceOf(&twin, View(bound)).ok());
  RowsOutside others(store.get(), Unfused({"m"}, {0.25f}));
  ASSERT_TRUE(others.Gather({1, 2}, {1, 1, 1, 1}).ok());
  others.GoTo(twin.get());
  others.slots.assign(4, 9.0f);
  ASSERT_TRUE(others.Assign().ok());
  EXPECT_EQ(others.changed_ids, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Export(*twin).slots, bound.slots);
  plain.optimizer.name = "sgd";
  ASSERT_TRUE(store->Clear({}).ok());
  auto other = MakeStore(TablePolicies());
  ASSERT_TRUE(ImportInPlaceOf(&other, View(plain)).ok());
  RowsOutside refused(other.get(), Unfused());
  ExpectError(refused.Gather({1}, {1, 1}), StatusCode::kFailedPrecondition,
              {"of 'sgd', but the update uses 'replay:test'"});
}

TEST(EmbeddingStoreUnfusedTest, SharedRowsReplaceMissingRows) {
  TablePolicies policies = MinCount(2);
  policies.shared_rows = 3;
  auto store = MakeStore(policies);
  Assign(store.get(), {1}, 5.0f);
  std::vector<int64_t> cold;
  for (int64_t id = 2; cold.size() < 2; ++id) {
    if (Mixed(id) % 3 == 1) cold.push_back(id);
  }
  RowsOutside rows(store.get(), Unfused({"m"}, {0.5f}));
  ASSERT_TRUE(rows.Gather({cold[0], 1, cold[1]}, {1, 2, 3, 4, 50, 60}).ok());
  EXPECT_EQ(rows.ids, (std::vector<int64_t>{1, 1}));
  EXPECT_FALSE(rows.shared[0]);
  EXPECT_TRUE(rows.shared[1]);
  EXPECT_EQ(rows.gradients, (std::vector<float>{3, 4, 51, 62}));
  EXPECT_EQ(store->Stats().count(Event::kGradientsDropped), 0);
  // Another caller writes first.
  RowsOutside first(store.get(), Unfused({"m"}, {0.5f}));
  ASSERT_TRUE(first.Gather({cold[0]}, {1, 1}).ok());
  first.values = {7, 8};
  ASSERT_TRUE(first.Assign().ok());
  rows.values = {6, 6, 6, 6};
  ASSERT_TRUE(rows.Assign().ok());
  EXPECT_EQ(rows.changed_ids, (std::vector<int64_t>{1}));
  EXPECT_TRUE(rows.shared[0]);
  EXPECT_EQ(rows.values, (std::vector<float>{7, 8}));
  EXPECT_EQ(rows.gradients, (std::vector<float>{51, 62}));
  rows.values = {9, 9};
  rows.slots = {3, 4};
  ASSERT_TRUE(rows.Assign().ok());
  EXPECT_EQ(RowsOf(*store, {1}), (std::vector<float>{6, 6}));
  const EmbeddingRows out = Export(*store);
  EXPECT_EQ(Floats(out.shared_values)[2], 9.0f);
  EXPECT_EQ(Floats(out.shared_slots),
            (std::vector<float>{0.5f, 0.5f, 3, 4, 0.5f, 0.5f}));
}

TEST(EmbeddingStoreUnfusedTest, ErrorsAreReportedAndChangeNothing) {
  auto store = MakeStore(TablePolicies());
  Assign(store.get(), {1}, 5.0f);
  const auto refused = [&](AttachedOptimizer optimizer, const char* message) {
    RowsOutside rows(store.get(), std::move(optimizer));
    ExpectError(rows.Gather({1}, {1, 1}), StatusCode::kInvalidArgument,
                {message});
    EXPECT_EQ(Export(*store).optimizer.name, "");
  };
  AttachedOptimizer adam;
  adam.name = "adam";
  refused(adam, "`optimizer` must be 'replay:' and a name, got 'adam'");
  refused(Unfused({"m"}, {}), "has 1 slot names, but 0 slot_inits");
  refused(Unfused({"m", "m"}, {0, 0}), "has two optimizer slots named 'm'");
  refused(Unfused({"a", "b", "c", "d", "e"}, {0, 0, 0, 0, 0}),
          "must have at most 4 optimizer slots, got 5");
  const bool shared[] = {true};
  RowsOutside rows(store.get(), Unfused());
  const std::vector<int64_t> ids = {0};
  ExpectError(rows.Gather(ids, {shared, 1}, {1, 1}),
              StatusCode::kInvalidArgument,
              {"must be a shared row in [0, 0), got 0"});
  // The same optimizer with other slots.
  ASSERT_TRUE(rows.Gather({1}, {1, 1}).ok());
  RowsOutside other(store.get(), Unfused({"m"}, {0}));
  ExpectError(
      other.Gather({1}, {1, 1}), StatusCode::kFailedPrecondition,
      {"the optimizer slots [] of 'replay:test', but the update uses [m]"});
}

// Value and slot of a row count its updates, so a lost update is detected.
// Concurrently, rows are moved into the places of removed ones.
TEST(EmbeddingStoreUnfusedTest, NoUpdateOfManyCallersIsLost) {
  auto store = MakeStore(TablePolicies());
  const std::vector<int64_t> ids = Range(0, 32);
  const std::vector<int64_t> others = Range(1000, 9000);
  Assign(store.get(), others, 0.0f);
  Assign(store.get(), ids, 0.0f);
  constexpr int kCallers = 4;
  constexpr int kRounds = 200;
  const ParallelFor threads = Threads(2);
  std::vector<std::thread> callers;
  for (int t = 0; t < kCallers; ++t) {
    callers.emplace_back([&] {
      RowsOutside rows(store.get(), Unfused({"n"}, {0}));
      const std::vector<float> gradients(ids.size() * kDim, 1.0f);
      for (int round = 0; round < kRounds; ++round) {
        ASSERT_TRUE(rows.Gather(ids, gradients, &threads).ok());
        do {
          for (size_t i = 0; i < rows.values.size(); ++i) {
            ASSERT_EQ(rows.values[i], rows.slots[i]);  // never torn
            rows.values[i] += rows.gradients[i];
            rows.slots[i] += 1.0f;
          }
          ASSERT_TRUE(rows.Assign(&threads).ok());
        } while (!rows.changed_ids.empty());
      }
    });
  }
  int64_t count;
  EXPECT_TRUE(store->Remove(others, &count, {}).ok());
  EXPECT_TRUE(store->Compact(&count, {}).ok());
  EXPECT_GT(count, 0);
  for (std::thread& caller : callers) caller.join();
  for (float value : RowsOf(*store, ids)) ASSERT_EQ(value, kCallers * kRounds);
}

}  // namespace
}  // namespace lodestar
