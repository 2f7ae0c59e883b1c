#include "tf_ops/core/embedding/embedding_pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/core/testing/stores.h"
#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/collection/embedding_collection.h"

namespace lodestar {
namespace {

constexpr int kDim = 3;
constexpr Combiner kCombiners[] = {Combiner::kSum,   Combiner::kMean,
                                   Combiner::kSqrtn, Combiner::kMax,
                                   Combiner::kFirst, Combiner::kLast};

// A table where the row of id i in [0, 50) is {i, -i, i * i}.
std::unique_ptr<EmbeddingStore> MakeStore() {
  auto store = StoreOf(kDim, 2, InitializerOf("zeros", 0, 0));
  std::vector<int64_t> ids;
  std::vector<float> rows;
  for (int i = 0; i < 50; ++i) {
    ids.push_back(i);
    rows.insert(rows.end(), {1.0f * i, -1.0f * i, 1.0f * i * i});
  }
  EXPECT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
  return store;
}

struct Batch {
  std::vector<int64_t> ids;
  std::vector<int64_t> splits = {0};
  std::vector<float> weights;
};

Batch RandomBatch(int seed, bool weighted) {
  std::mt19937_64 rng(seed);
  Batch batch;
  for (int b = 0; b < 40; ++b) {
    const int length = b % 5 == 0 ? 0 : rng() % 90;
    for (int i = 0; i < length; ++i) {
      batch.ids.push_back(rng() % 60);  // 50 to 59 are missing
      if (weighted) batch.weights.push_back(static_cast<float>(rng() % 4));
    }
    batch.splits.push_back(batch.ids.size());
  }
  return batch;
}

Bags MakeBags(const Batch& batch, Combiner combiner) {
  Bags bags;
  bags.ids = batch.ids;
  bags.row_splits = batch.splits;
  bags.weights = batch.weights;
  bags.combiner = combiner;
  return bags;
}

// The definition in float64 on unpooled rows.
std::vector<double> Reference(const Bags& bags, const std::vector<float>& rows,
                              int64_t padding) {
  std::vector<double> pooled;
  for (int64_t b = 0; b < bags.size(); ++b) {
    for (int c = 0; c < kDim; ++c) {
      double sum = 0, weights = 0, squares = 0, most = 0, first = 0, last = 0;
      int count = 0;
      for (int64_t i = bags.row_splits[b]; i < bags.row_splits[b + 1]; ++i) {
        if (bags.ids[i] == padding) continue;
        const double x = rows[i * kDim + c];
        const double w = bags.weights.empty() ? 1.0 : bags.weights[i];
        sum += w * x;
        weights += w;
        squares += w * w;
        if (count == 0 || x > most) most = x;
        if (count == 0) first = x;
        last = x;
        ++count;
      }
      double result = 0;
      if (count > 0) {
        switch (bags.combiner) {
          case Combiner::kSum:
            result = sum;
            break;
          case Combiner::kMean:
            result = weights == 0 ? 0 : sum / weights;
            break;
          case Combiner::kSqrtn:
            result = squares == 0 ? 0 : sum / std::sqrt(squares);
            break;
          case Combiner::kMax:
            result = most;
            break;
          case Combiner::kFirst:
            result = first;
            break;
          case Combiner::kLast:
            result = last;
            break;
        }
      }
      pooled.push_back(result);
    }
  }
  return pooled;
}

TEST(EmbeddingPoolTest, OnlyPoolFindCountsReads) {
  auto store = MakeStore();
  const std::vector<int64_t> ids = {1, 1000, 7, 1};
  const std::vector<int64_t> splits = {0, 3, 3, 4};
  const std::vector<int64_t> known = {1};
  const std::vector<float> row(kDim, 1.0f);
  ASSERT_TRUE(store->RemoveAll({}).ok());
  ASSERT_TRUE(store->InsertOrAssign(known, row.data(), nullptr).ok());
  const int64_t padding = 7;
  const int64_t of_empty = 1;
  Bags bags;
  bags.ids = ids;
  bags.row_splits = splits;
  bags.padding_id = &padding;
  bags.default_id = &of_empty;
  std::vector<float> pooled(bags.size() * kDim);
  PoolFind({store.get(), Missing()}, bags, pooled.data(), nullptr);
  EXPECT_EQ(store->Stats().count(Event::kReadHits), 2);
  EXPECT_EQ(store->Stats().count(Event::kReadMisses), 1);
  const std::vector<int64_t> positions = {0, 1, kNoPosition, 0};
  const std::vector<float> rows(2 * kDim);
  PoolFetched({RowType::kFloat32, kDim, rows.data(), 2}, bags, positions,
              {store.get(), Missing()}, nullptr, pooled.data(), nullptr);
  EXPECT_EQ(store->Stats().count(Event::kReadHits), 2);
}

TEST(EmbeddingPoolTest, AllVariantsAgreeWithTheDefinition) {
  auto store = MakeStore();
  const int64_t padding = 7;
  for (bool weighted : {false, true}) {
    for (Combiner combiner : kCombiners) {
      if (weighted && combiner > Combiner::kSqrtn) continue;
      const Batch batch = RandomBatch(static_cast<int>(combiner), weighted);
      Bags bags = MakeBags(batch, combiner);
      bags.padding_id = &padding;
      ASSERT_TRUE(CheckBags(bags).ok());
      std::vector<float> rows(batch.ids.size() * kDim);
      store->Find(batch.ids, &padding, Missing(), rows.data(), nullptr,
                  nullptr);
      const std::vector<double> wanted = Reference(bags, rows, padding);
      std::vector<float> pooled(bags.size() * kDim);
      std::vector<int64_t> winners(pooled.size());
      PoolFind({store.get(), Missing()}, bags, pooled.data(), winners.data());
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_NEAR(pooled[i], wanted[i], 1e-4 * (1 + std::abs(wanted[i])));
      }
      std::vector<int64_t> unique;
      std::vector<int64_t> positions(batch.ids.size());
      BatchUnique(batch.ids, &padding, &unique, positions);
      std::vector<RowRef> refs(unique.size());
      std::vector<float> unique_rows(unique.size() * kDim);
      const EmbeddingStore::TableIds table = {
          store.get(), unique, refs, nullptr, {}, unique_rows.data()};
      ASSERT_TRUE(EmbeddingStore::FindOrInsert({&table, 1}, {}, nullptr).ok());
      std::vector<float> again(pooled.size());
      std::vector<int64_t> winners_again(pooled.size());
      const FetchedRows fetched = {RowType::kFloat32, kDim, unique_rows.data(),
                                   static_cast<int64_t>(unique.size())};
      again.assign(pooled.size(), -9);
      winners_again.assign(pooled.size(), -9);
      PoolFetched(fetched, bags, positions, {}, nullptr, again.data(),
                  winners_again.data());
      EXPECT_EQ(again, pooled);
      EXPECT_EQ(winners_again, winners);
    }
  }
}

TEST(EmbeddingPoolTest, AnEmptyBagIsZerosOrTheDefaultRow) {
  auto store = MakeStore();
  Batch batch;
  batch.splits = {0, 0, 0};
  Bags bags = MakeBags(batch, Combiner::kMean);
  std::vector<float> pooled(2 * kDim, 9.0f);
  PoolFind({store.get(), Missing()}, bags, pooled.data(), nullptr);
  EXPECT_EQ(pooled, std::vector<float>(2 * kDim, 0.0f));
  const int64_t fallback = 2;
  bags.default_id = &fallback;
  PoolFind({store.get(), Missing()}, bags, pooled.data(), nullptr);
  EXPECT_EQ(pooled, (std::vector<float>{2, -2, 4, 2, -2, 4}));
  const FetchedRows fetched = {RowType::kFloat32, kDim, nullptr, 0};
  PoolFetched(fetched, bags, {}, {}, nullptr, pooled.data(), nullptr);
  EXPECT_EQ(pooled, std::vector<float>(2 * kDim, 0.0f));
  const std::vector<float> row = {1, 2, 3};
  PoolFetched(fetched, bags, {}, {}, row.data(), pooled.data(), nullptr);
  EXPECT_EQ(pooled, (std::vector<float>{1, 2, 3, 1, 2, 3}));
}

TEST(EmbeddingPoolTest, FetchedRowsAreReadByPosition) {
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  const FetchedRows fetched = {RowType::kFloat32, kDim, rows.data(), 2};
  const std::vector<int64_t> positions = {1, 0, kNoPosition, 1};
  std::vector<float> out(3 * kDim, -9);
  fetched.Read(positions, 1, 4, out.data());
  EXPECT_EQ(out, (std::vector<float>{1, 2, 3, 0, 0, 0, 4, 5, 6}));
}

TEST(EmbeddingPoolTest, MaxKeepsTheFirstOfEqualRows) {
  auto store = MakeStore();
  Batch batch;
  batch.ids = {3, 3, 1};
  batch.splits = {0, 3};
  const Bags bags = MakeBags(batch, Combiner::kMax);
  std::vector<float> pooled(kDim);
  std::vector<int64_t> winners(kDim);
  PoolFind({store.get(), Missing()}, bags, pooled.data(), winners.data());
  EXPECT_EQ(winners, (std::vector<int64_t>{0, 2, 0}));
}

TEST(EmbeddingPoolTest, InvalidBagsAreReported) {
  Batch batch;
  batch.ids = {1, 2, 3};
  const auto message = [&](std::vector<int64_t> splits,
                           std::vector<float> weights = {},
                           Combiner combiner = Combiner::kSum) {
    batch.splits = splits;
    batch.weights = weights;
    return CheckBags(MakeBags(batch, combiner)).message();
  };
  EXPECT_EQ(message({0, 1, 3}), "");
  EXPECT_NE(message({}).find("B + 1 elements, got none"), std::string::npos);
  EXPECT_NE(message({1, 3}).find("`row_splits[0]` must be 0, got 1"),
            std::string::npos);
  EXPECT_NE(message({0, 2, 1, 3})
                .find("`row_splits[1]` is 2 and `row_splits[2]` is 1"),
            std::string::npos);
  EXPECT_NE(message({0, 2}).find("must end at 3, the number of ids, got 2"),
            std::string::npos);
  EXPECT_NE(message({0, 3}, {1.0f}).find("`weights` has 1 elements"),
            std::string::npos);
  EXPECT_NE(message({0, 3}, {1, 1, 1}, Combiner::kMax)
                .find("combiner sum, mean or sqrtn"),
            std::string::npos);
}

// Central differences of sum(pooled * gradient) for the row of each id.
TEST(EmbeddingGradientTest, AgreesWithNumericDifferences) {
  auto store = MakeStore();
  for (bool weighted : {false, true}) {
    for (Combiner combiner : kCombiners) {
      if (weighted && combiner > Combiner::kSqrtn) continue;
      Batch batch;
      batch.ids = {1, 2, 1, 3, 3, 2, 4};
      batch.splits = {0, 3, 3, 7};
      if (weighted) batch.weights = {1, 2, 0.5f, 1, 3, 1, 2};
      const Bags bags = MakeBags(batch, combiner);
      const std::vector<float> gradients = {1, 2, 3, 9, 9, 9, -1, 0.5f, 2};
      std::vector<int64_t> unique;
      std::vector<int64_t> positions(batch.ids.size());
      BatchUnique(batch.ids, nullptr, &unique, positions);
      std::vector<float> pooled(bags.size() * kDim);
      std::vector<int64_t> winners(pooled.size());
      PoolFind({store.get(), Missing()}, bags, pooled.data(), winners.data());
      CollectionFeature feature;
      feature.combiner = combiner;
      const std::vector<CollectionFeature> features = {feature};
      const std::vector<FeatureTensors> tensors = {
          {batch.ids, batch.splits, batch.weights}};
      CollectionBatch one;
      ASSERT_TRUE(
          one.Init(features, tensors, 1, CollectionBatch::Ids::kCount, nullptr)
              .ok());
      std::vector<float> sums(unique.size() * kDim);
      CollectionBatch::Sums table;
      table.positions = positions;
      table.num_unique = unique.size();
      table.dim = kDim;
      table.sums = sums.data();
      ASSERT_TRUE(one.SumGradients({gradients.data()},
                                   {combiner == Combiner::kMax ? winners.data()
                                                               : nullptr},
                                   {table}, nullptr)
                      .ok());
      for (size_t u = 0; u < unique.size(); ++u) {
        for (int c = 0; c < kDim; ++c) {
          std::vector<float> row(kDim);
          const Span<const int64_t> id(&unique[u], 1);
          store->Find(id, nullptr, Missing(), row.data(), nullptr, nullptr);
          double value[2];
          constexpr float kStep = 0.0625f;
          for (int side = 0; side < 2; ++side) {
            std::vector<float> moved = row;
            moved[c] += side == 0 ? kStep : -kStep;
            ASSERT_TRUE(store->InsertOrAssign(id, moved.data(), nullptr).ok());
            PoolFind({store.get(), Missing()}, bags, pooled.data(),
                     winners.data());
            value[side] = 0;
            for (size_t i = 0; i < pooled.size(); ++i) {
              value[side] += pooled[i] * gradients[i];
            }
          }
          ASSERT_TRUE(store->InsertOrAssign(id, row.data(), nullptr).ok());
          EXPECT_NEAR(sums[u * kDim + c], (value[0] - value[1]) / (2 * kStep),
                      2e-3);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lodestar
