#include "tf_ops/core/sequence/sequence_concat.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/sequence/sequences.h"

namespace lodestar {
namespace {

using Numbers = std::vector<int64_t>;

std::string SplitsError(const std::vector<std::vector<Numbers>>& lods,
                        const Numbers& num_rows) {
  std::vector<LodLevels> levels;
  for (const auto& lod : lods) {
    levels.push_back(LodLevels(lod.begin(), lod.end()));
  }
  Numbers joined;
  return SequenceConcatSplits(levels, num_rows, &joined).message();
}

TEST(SequenceConcatTest, RejectsBatchesThatDiffer) {
  EXPECT_EQ(SplitsError({{{0, 2}, {0, 1, 3}}, {{0, 2}, {0, 0, 1}}}, {3, 1}),
            "");
  EXPECT_EQ(SplitsError({{{0, 3}}, {{0, 1, 1}}}, {3, 1}),
            "`xs[1]` has 2 sequences at level 0, but `xs[0]` has 1.");
  EXPECT_EQ(
      SplitsError({{{0, 1, 2}, {0, 1, 3}}, {{0, 2, 2}, {0, 0, 1}}}, {3, 1}),
      "`xs[1].lod[0][1]` must be 1 as in `xs[0]`, got 2.");
  EXPECT_EQ(SplitsError({{{0, 3}}, {{1, 1}}}, {3, 1}),
            "`xs[1]`: `lod[0][0]` must be 0, got 1.");
  EXPECT_EQ(SplitsError({{{0, INT64_MAX}}, {{0, 1}}}, {INT64_MAX, 1}),
            "`xs[1]` has 1 rows, so the sum overflows int64.");
}

// Compares random batches with a naive loop, unpartitioned and with every
// partition: each row is moved once, to its position.
TEST(SequenceConcatTest, MatchesNaiveLoopsForEveryPartition) {
  std::mt19937_64 random(3);
  const ParallelFor in_pieces = InSteps(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t batch = random() % 6;
    std::vector<Numbers> splits(1 + random() % 4, Numbers{0});
    std::vector<std::pair<size_t, int64_t>> wanted;  // batch and row
    for (int64_t b = 0; b < batch; ++b) {
      for (size_t k = 0; k < splits.size(); ++k) {
        const int64_t first = splits[k].back();
        splits[k].push_back(first + static_cast<int64_t>(random() % 4));
        for (int64_t row = first; row < splits[k].back(); ++row) {
          wanted.emplace_back(k, row);
        }
      }
    }
    std::vector<LodLevels> levels;
    LodLevels last;
    Numbers num_rows;
    for (const Numbers& s : splits) {
      levels.push_back({Span<const int64_t>(s)});
      last.push_back(s);
      num_rows.push_back(s.back());
    }
    Numbers joined;
    ASSERT_TRUE(SequenceConcatSplits(levels, num_rows, &joined).ok());
    ASSERT_EQ(joined.back(), static_cast<int64_t>(wanted.size()));
    for (const ParallelFor* parallel :
         {static_cast<const ParallelFor*>(nullptr), &in_pieces}) {
      std::vector<std::pair<size_t, int64_t>> found(wanted.size(), {9, -1});
      SequenceConcatRuns(
          last, joined, 1,
          [&](size_t k, int64_t row, int64_t place, int64_t count) {
            for (int64_t i = 0; i < count; ++i) {
              EXPECT_EQ(found[place + i].second, -1);
              found[place + i] = {k, row + i};
            }
          },
          parallel);
      EXPECT_EQ(found, wanted);
    }
  }
}

}  // namespace
}  // namespace lodestar
