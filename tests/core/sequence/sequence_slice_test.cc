#include "tf_ops/core/sequence/sequence_slice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/core/sequence/sequences.h"

namespace lodestar {
namespace {

using Numbers = std::vector<int64_t>;

std::string SplitsError(const Numbers& splits, const Numbers& offset,
                        const Numbers& length) {
  Numbers sliced(splits.size());
  return SequenceSliceSplits(splits, offset, length, Span<int64_t>(sliced))
      .message();
}

TEST(SequenceSliceTest, RejectsInvalidSlices) {
  EXPECT_EQ(SplitsError({0, 2, 6}, {0, 1}, {2, 3}), "");
  EXPECT_EQ(
      SplitsError({0, 2, 6}, {0, 1}, {2, 4}),
      "`length[1]` is 4 from `offset[1]`=1, but sequence 1 has length 4.");
  EXPECT_EQ(SplitsError({0, 2, 6}, {0, -1}, {2, 4}),
            "`offset[1]` must be at least 0, got -1.");
  EXPECT_EQ(SplitsError({0, 2, 6}, {0, 1}, {2}),
            "`length` has 1 elements, but there are 2 sequences.");
  EXPECT_NE(SplitsError({0, 2}, {INT64_MAX}, {INT64_MAX}), "");
}

// Compares random batches with a naive loop, unpartitioned and with every
// partition.
TEST(SequenceSliceTest, MatchesNaiveLoopsForEveryPartition) {
  std::mt19937_64 random(7);
  const ParallelFor in_pieces = InSteps(1);
  for (int trial = 0; trial < 200; ++trial) {
    Numbers splits = {0};
    Numbers offset;
    Numbers length;
    const int64_t dim = trial % 4;
    std::vector<double> wanted;
    std::vector<double> wanted_gradient;
    for (int64_t b = random() % 6; b-- > 0;) {
      const int64_t rows = random() % 6;
      offset.push_back(random() % (rows + 1));
      length.push_back(random() % (rows - offset.back() + 1));
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < dim; ++c) {
          const double x = (splits.back() + r) * dim + c + 1;
          const bool kept =
              r >= offset.back() && r < offset.back() + length.back();
          if (kept) wanted.push_back(x);
          wanted_gradient.push_back(kept ? x : 0.0);
        }
      }
      splits.push_back(splits.back() + rows);
    }
    std::vector<double> rows(splits.back() * dim);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = i + 1;
    Numbers sliced(splits.size());
    ASSERT_TRUE(
        SequenceSliceSplits(splits, offset, length, Span<int64_t>(sliced))
            .ok());
    for (const ParallelFor* parallel :
         {static_cast<const ParallelFor*>(nullptr), &in_pieces}) {
      std::vector<double> out(wanted.size(), -7.0);
      SequenceSlice<double>(rows.data(), dim, splits, offset, sliced,
                            out.data(), parallel);
      EXPECT_EQ(out, wanted);
      std::vector<double> gradient(rows.size(), -7.0);
      SequenceSliceGradient<double>(out.data(), dim, splits, offset, sliced,
                                    gradient.data(), parallel);
      EXPECT_EQ(gradient, wanted_gradient);
    }
  }
}

}  // namespace
}  // namespace lodestar
