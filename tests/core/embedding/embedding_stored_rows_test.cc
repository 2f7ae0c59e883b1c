// Tables whose rows are stored in fewer bits for serving. Also run it with
// --config=tsan.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/stores.h"
#include "tests/core/testing/threads.h"
#include "tf_ops/core/embedding/embedding_pool.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

using Store = std::unique_ptr<EmbeddingStore>;

struct Case {
  RowStorage storage;
  double error;  // relative to the largest number of a row
};

class EmbeddingStoredRowsTest : public testing::TestWithParam<Case> {
 protected:
  static Store Make(int dim, TablePolicies policies = TablePolicies()) {
    policies.storage = GetParam().storage;
    return StoreOf(dim, 4, InitializerOf("normal", 0, 0.05f), policies);
  }
  static std::vector<float> Random(int64_t count) {
    std::mt19937_64 rng(count);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float> numbers(count);
    for (float& x : numbers) x = uniform(rng);
    return numbers;
  }
  static std::vector<int64_t> Ids(int64_t count) {
    std::vector<int64_t> ids(count);
    for (int64_t i = 0; i < count; ++i) ids[i] = i * 4096 - 7;
    return ids;
  }
  static std::vector<float> Read(const EmbeddingStore& store,
                                 const std::vector<int64_t>& ids,
                                 const ParallelFor* parallel = nullptr) {
    std::vector<float> rows(ids.size() * store.dim());
    store.Find(ids, nullptr, Missing(), rows.data(), nullptr, parallel);
    return rows;
  }
  static void ExpectNear(const std::vector<float>& rows,
                         const std::vector<float>& wanted) {
    ASSERT_EQ(rows.size(), wanted.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_NEAR(rows[i], wanted[i], GetParam().error) << i;
    }
  }
};

TEST_P(EmbeddingStoredRowsTest, EveryWayInAndOutRounds) {
  const ParallelFor threads = Threads(3);
  for (const int dim : {1, 3, 32, 300, 4096}) {
    SCOPED_TRACE(dim);
    const auto store = Make(dim);
    const std::vector<int64_t> ids = Ids(50);
    const std::vector<float> rows = Random(ids.size() * dim);
    ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
    const std::vector<float> stored = Read(*store, ids);
    ExpectNear(stored, rows);
    EXPECT_EQ(Read(*store, ids, &threads), stored);
    // Overwrites rows.
    ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
    EXPECT_EQ(Read(*store, ids), stored);
    const EmbeddingRows exported = Export(*store);
    const Span<const float> values = exported.values.as<float>();
    EXPECT_EQ(std::vector<float>(values.begin(), values.end()), stored);
    InspectedIds inspected;
    ASSERT_TRUE(store->Inspect(ids, &inspected, {}).ok());
    const Span<const float> seen = inspected.values.as<float>();
    EXPECT_EQ(std::vector<float>(seen.begin(), seen.end()), stored);
    auto other = Make(dim);
    ASSERT_TRUE(ImportInPlaceOf(&other, View(exported)).ok());
    ExpectNear(Read(*other, ids), rows);
    EXPECT_EQ(other->policies().storage, GetParam().storage);
    ASSERT_TRUE(other->Import(View(exported), nullptr).ok());
    ExpectNear(Read(*other, ids), rows);
    // Rows that are not stored are not rounded.
    Missing initial;
    initial.kind = Missing::Kind::kInitial;
    std::vector<float> drawn(dim);
    store->Find(std::vector<int64_t>{99}, nullptr, initial, drawn.data(),
                nullptr, nullptr);
    std::vector<float> wanted(dim);
    store->initializer().Draw(99, dim, wanted.data());
    EXPECT_EQ(drawn, wanted);
  }
}

TEST_P(EmbeddingStoredRowsTest, PoolsTheRowsThatLookupsReturn) {
  constexpr int kDim = 33;
  const auto store = Make(kDim);
  const std::vector<int64_t> ids = Ids(3);
  const std::vector<float> rows = Random(ids.size() * kDim);
  ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
  const std::vector<float> stored = Read(*store, ids);
  const std::vector<int64_t> splits = {0, 2, 2, 3};
  Bags bags;
  bags.ids = ids;
  bags.row_splits = splits;
  std::vector<float> pooled(3 * kDim);
  PoolFind({store.get(), Missing()}, bags, pooled.data(), nullptr);
  for (int c = 0; c < kDim; ++c) {
    EXPECT_EQ(pooled[c], stored[c] + stored[kDim + c]);
    EXPECT_EQ(pooled[kDim + c], 0);
    EXPECT_EQ(pooled[2 * kDim + c], stored[2 * kDim + c]);
  }
}

TEST_P(EmbeddingStoredRowsTest, RowsTakeTheMemoryOfTheirStorage) {
  constexpr int kDim = 32;
  const auto store = Make(kDim);
  const std::vector<int64_t> ids = Ids(5000);
  const std::vector<float> rows = Random(ids.size() * kDim);
  ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
  const EmbeddingStats stats = store->Stats();
  const int64_t bytes = GetParam().storage == RowStorage::kInt8 ? 40 : 64;
  EXPECT_EQ(stats.row_bytes, stats.capacity * (24 + bytes));
  EXPECT_EQ(stats.slot_bytes, 0);
}

TEST_P(EmbeddingStoredRowsTest, CompactionMovesRows) {
  const auto store = Make(5);
  const std::vector<int64_t> ids = Ids(20000);
  const std::vector<float> rows = Random(ids.size() * 5);
  ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
  const std::vector<int64_t> gone(ids.begin(), ids.end() - 1000);
  const std::vector<int64_t> kept(ids.end() - 1000, ids.end());
  const std::vector<float> stored = Read(*store, kept);
  int64_t count = 0;
  ASSERT_TRUE(store->Remove(gone, &count, nullptr).ok());
  ASSERT_TRUE(store->Compact(&count, nullptr).ok());
  EXPECT_GT(count, 0);
  EXPECT_EQ(Read(*store, kept), stored);
}

TEST_P(EmbeddingStoredRowsTest, EvictionReadsAndReturnsRows) {
  const auto store = Make(2);
  const std::vector<int64_t> ids = {1, 2};
  const std::vector<float> rows = {0.5f, 0.5f, 3.0f, 4.0f};
  ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
  EXPECT_TRUE(store->SetStep(1).ok());
  EvictionPolicy policy;
  policy.min_norm = 1;
  std::vector<int64_t> evicted(1);
  std::vector<float> values(2);
  int64_t count = 0;
  ASSERT_TRUE(store
                  ->EvictRows(
                      policy,
                      [&](int64_t, Table::EvictedRows* copies) {
                        copies->ids = evicted.data();
                        copies->rows = reinterpret_cast<char*>(values.data());
                        return Status();
                      },
                      &count, nullptr)
                  .ok());
  EXPECT_EQ(count, 1);
  EXPECT_EQ(evicted[0], 1);
  EXPECT_NEAR(values[0], 0.5f, 1e-6);
  EXPECT_EQ(store->size(), 1);
}

TEST_P(EmbeddingStoredRowsTest, SharedRowsAreStoredAsTheyAre) {
  TablePolicies policies;
  policies.shared_rows = 3;
  const auto read = [](const EmbeddingStore& store) {
    Missing shared;
    shared.kind = Missing::Kind::kShared;
    std::vector<float> row(7);
    store.Find(std::vector<int64_t>{5}, nullptr, shared, row.data(), nullptr,
               nullptr);
    return row;
  };
  const auto store = Make(7, policies);
  Store same;
  ASSERT_TRUE(
      EmbeddingStore::Create(7, 4, store->initializer(), &same, policies).ok());
  EXPECT_EQ(read(*store), read(*same));
}

TEST_P(EmbeddingStoredRowsTest, CannotBeTrained) {
  const auto store = Make(2);
  const std::vector<int64_t> ids = {1};
  const std::vector<float> row = {1, 2};
  ASSERT_TRUE(store->InsertOrAssign(ids, row.data(), nullptr).ok());
  const auto expect = [&](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find(NameOf(GetParam().storage)),
              std::string::npos)
        << status.message();
    EXPECT_EQ(store->size(), 1);
    EXPECT_EQ(Read(*store, {1, 2})[2], 0);
  };
  std::vector<RowRef> refs(1);
  for (const int64_t id : {1, 2}) {
    const std::vector<int64_t> one = {id};
    expect(store->FindOrInsert(one, kTraining, refs, nullptr));
  }
  const SparseOptimizer sgd = OptimizerOf("sgd", {1.0f, 0.0f});
  for (const bool create : {false, true}) {
    expect(store->Apply(ids, row.data(), "sgd", sgd, {}, create, -1, nullptr));
  }
  AttachedOptimizer unfused;
  unfused.name = "keras";
  expect(store->CheckOptimizer(unfused));
}

// The numbers of a row are equal whenever it is read.
TEST_P(EmbeddingStoredRowsTest, ReadsDuringWritesSeeWholeRows) {
  constexpr int kDim = 40;
  const auto store = Make(kDim);
  const std::vector<int64_t> ids = Ids(20);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    std::vector<float> rows(ids.size() * kDim);
    for (int k = 1; k <= 300; ++k) {
      std::fill(rows.begin(), rows.end(), static_cast<float>(k % 7 + 1));
      EXPECT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
      int64_t removed = 0;
      EXPECT_TRUE(store->Remove({ids.data(), 5}, &removed, nullptr).ok());
    }
    done = true;
  });
  while (!done) {
    const std::vector<float> rows = Read(*store, ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      for (int c = 1; c < kDim; ++c) {
        ASSERT_EQ(rows[i * kDim + c], rows[i * kDim]);
      }
    }
  }
  writer.join();
}

INSTANTIATE_TEST_SUITE_P(All, EmbeddingStoredRowsTest,
                         testing::Values(Case{RowStorage::kFloat16, 0.0005},
                                         Case{RowStorage::kBFloat16, 0.004},
                                         Case{RowStorage::kInt8, 0.004}));

}  // namespace
}  // namespace lodestar
