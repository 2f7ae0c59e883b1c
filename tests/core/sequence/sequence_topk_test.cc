#include "tf_ops/core/sequence/sequence_topk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/core/sequence/sequences.h"

namespace lodestar {
namespace {

using Numbers = std::vector<int64_t>;

TEST(SequenceTopkTest, RejectsInconsistentSizes) {
  const auto error = [](const Numbers& x, const Numbers& row,
                        const Numbers& col, int64_t channels) {
    return CheckMatrixSizes(x, row, col, channels).message();
  };
  EXPECT_EQ(error({0, 12, 12}, {0, 2, 2}, {0, 3, 4}, 2), "");
  EXPECT_EQ(
      error({0, 12}, {0, 2}, {0, 3}, 1),
      "sequence 0 of `x` has 12 values, expected 1 channels of 2 rows of 3.");
  EXPECT_EQ(error({0, 12}, {0, 2, 2}, {0, 3}, 2),
            "`row` has 2 sequences, but `x` has 1.");
  EXPECT_EQ(error({0, 12}, {0, 2}, {0}, 2),
            "`col` has 0 sequences, but `x` has 1.");
  // Products that overflow int64 to a matching value.
  const int64_t large = int64_t{1} << 32;
  EXPECT_NE(error({0, 0}, {0, large}, {0, large}, 1), "");
  EXPECT_NE(error({0, 4}, {0, 2}, {0, 2}, INT64_MAX), "");
}

// Compares random matrices with a stable sort, unpartitioned and with every
// partition.
TEST(SequenceTopkTest, MatchesAStableSortForEveryPartition) {
  std::mt19937_64 random(9);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const ParallelFor in_pieces = InSteps(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t channels = 1 + static_cast<int64_t>(random() % 3);
    const int64_t k = 1 + static_cast<int64_t>(random() % 6);
    Numbers x_splits = {0};
    Numbers row_splits = {0};
    Numbers col_splits = {0};
    std::vector<float> x;
    Numbers wanted;
    for (int64_t b = random() % 5; b-- > 0;) {
      const int64_t rows = random() % 4;
      const int64_t columns = random() % 9;
      const int64_t first = x_splits.back();
      for (int64_t i = 0; i < channels * rows * columns; ++i) {
        x.push_back(random() % 9 == 0 ? nan : static_cast<float>(random() % 5));
      }
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t channel = 0; channel < channels; ++channel) {
          Numbers places(columns);
          std::iota(places.begin(), places.end(),
                    first + (channel * rows + row) * columns);
          std::stable_sort(
              places.begin(), places.end(), [&](int64_t p, int64_t q) {
                return x[p] > x[q] || (std::isnan(x[q]) && !std::isnan(x[p]));
              });
          places.resize(k, -1);
          wanted.insert(wanted.end(), places.begin(), places.end());
        }
      }
      x_splits.push_back(static_cast<int64_t>(x.size()));
      row_splits.push_back(row_splits.back() + rows);
      col_splits.push_back(col_splits.back() + columns);
    }
    ASSERT_TRUE(
        CheckMatrixSizes(x_splits, row_splits, col_splits, channels).ok());
    for (const ParallelFor* parallel :
         {static_cast<const ParallelFor*>(nullptr), &in_pieces}) {
      Numbers index(wanted.size(), -7);
      SequenceTopk<float>(x.data(), x_splits, row_splits, col_splits, channels,
                          k, index.data(), parallel);
      EXPECT_EQ(index, wanted);
    }
  }
}

}  // namespace
}  // namespace lodestar
