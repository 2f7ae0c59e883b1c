#include "tf_ops/core/sequence_pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lodestar {
namespace {

const std::vector<float> kRows = {1, 3, 2, 4, 6, 5, 1};
const std::vector<int64_t> kSplits = {0, 2, 5, 7, 7};

template <typename T = float>
std::vector<T> Pool(Combiner combiner, const std::vector<T>& rows,
                    const std::vector<int64_t>& splits, T pad = 0,
                    std::vector<int64_t>* index = nullptr) {
  std::vector<T> pooled(splits.size() - 1);
  std::vector<int64_t> unused(pooled.size());
  if (index == nullptr) index = &unused;
  index->resize(pooled.size());
  SequencePool<T>(combiner, rows.data(), 1, splits, pad, pooled.data(),
                  index->data(), nullptr);
  return pooled;
}

TEST(SequencePoolTest, TheDocumentedExample) {
  EXPECT_EQ(Pool(Combiner::kSum, kRows, kSplits),
            (std::vector<float>{4, 12, 6, 0}));
  EXPECT_EQ(Pool(Combiner::kMean, kRows, kSplits),
            (std::vector<float>{2, 4, 3, 0}));
  const auto sqrtn = Pool(Combiner::kSqrtn, kRows, kSplits);
  EXPECT_FLOAT_EQ(sqrtn[0], 4 / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(sqrtn[1], 12 / std::sqrt(3.0f));
  EXPECT_EQ(Pool(Combiner::kFirst, kRows, kSplits),
            (std::vector<float>{1, 2, 5, 0}));
  EXPECT_EQ(Pool(Combiner::kLast, kRows, kSplits),
            (std::vector<float>{3, 6, 1, 0}));
  std::vector<int64_t> index;
  EXPECT_EQ(Pool(Combiner::kMax, kRows, kSplits, -9.0f, &index),
            (std::vector<float>{3, 6, 5, -9}));
  EXPECT_EQ(index, (std::vector<int64_t>{1, 4, 5, -1}));
}

TEST(SequencePoolTest, MaxKeepsTheFirstAndNanNeverWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<int64_t> index;
  EXPECT_EQ(Pool(Combiner::kMax, {2.0f, nan, 2.0f}, {0, 3}, 0.0f, &index)[0],
            2.0f);
  EXPECT_EQ(index[0], 0);
}

TEST(SequencePoolTest, IntegersAreCut) {
  EXPECT_EQ(Pool<int64_t>(Combiner::kMean, {3, 4, -3, -4}, {0, 2, 4}),
            (std::vector<int64_t>{3, -3}));
}

TEST(SequencePoolTest, NoSequencesAndNoRows) {
  EXPECT_TRUE(Pool(Combiner::kSum, {}, {0}).empty());
  EXPECT_EQ(Pool(Combiner::kMean, {}, {0, 0, 0}, 7.0f),
            (std::vector<float>{7, 7}));
}

TEST(SequencePoolTest, GradientsGoWhereTheValuesCameFrom) {
  const std::vector<float> gradient = {1, 2, 3, 4};
  const auto back = [&](Combiner combiner) {
    std::vector<int64_t> index;
    Pool(combiner, kRows, kSplits, 0.0f, &index);
    std::vector<float> rows(kRows.size(), -1.0f);
    SequencePoolGradient<float>(combiner, gradient.data(), 1, kSplits,
                                index.data(), rows.data(), nullptr);
    return rows;
  };
  EXPECT_EQ(back(Combiner::kSum), (std::vector<float>{1, 1, 2, 2, 2, 3, 3}));
  EXPECT_EQ(back(Combiner::kMean),
            (std::vector<float>{0.5f, 0.5f, 2.0f / 3, 2.0f / 3, 2.0f / 3, 1.5f,
                                1.5f}));
  EXPECT_EQ(back(Combiner::kMax), (std::vector<float>{0, 1, 0, 0, 2, 3, 0}));
  EXPECT_EQ(back(Combiner::kFirst), (std::vector<float>{1, 0, 2, 0, 0, 3, 0}));
  EXPECT_EQ(back(Combiner::kLast), (std::vector<float>{0, 1, 0, 0, 2, 0, 3}));
}

}  // namespace
}  // namespace lodestar
