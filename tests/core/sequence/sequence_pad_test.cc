#include "tf_ops/core/sequence/sequence_pad.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/core/sequence/sequences.h"
#include "tf_ops/core/sequence/lod.h"

namespace lodestar {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(SequencePadTest, Strings) {
  const std::vector<std::string> rows = {"a", "b", "c"};
  const std::vector<int64_t> splits = {0, 2, 2, 3};
  const std::string pad = "zz";
  std::vector<std::string> padded(6);
  SequencePad(rows.data(), 1, splits, &pad, 2, padded.data(), nullptr);
  EXPECT_EQ(padded,
            (std::vector<std::string>{"a", "b", "zz", "zz", "c", "zz"}));
  std::vector<std::string> back(3);
  SequenceUnpad(padded.data(), 1, 2, splits, back.data(), nullptr);
  EXPECT_EQ(back, rows);
}

TEST(SequencePadTest, PaddedSteps) {
  const std::vector<int64_t> splits = {0, 2, 7, 7};
  int64_t steps = -7;
  EXPECT_TRUE(PaddedSteps(splits, -1, &steps).ok());
  EXPECT_EQ(steps, 5);
  EXPECT_TRUE(PaddedSteps(splits, 5, &steps).ok());
  EXPECT_TRUE(PaddedSteps(splits, kMax, &steps).ok());
  EXPECT_EQ(steps, kMax);
  EXPECT_TRUE(PaddedSteps(std::vector<int64_t>{0}, -1, &steps).ok());
  EXPECT_EQ(steps, 0);
  EXPECT_EQ(PaddedSteps(splits, 4, &steps).message(),
            "`maxlen` is 4, but sequence 1 has 5 rows.");
  EXPECT_EQ(
      PaddedSteps(splits, -2, &steps).message(),
      "`maxlen` must be at least 0, or -1 for the longest length, got -2.");
}

// Compares random sequences with a naive loop, unpartitioned and with every
// partition, for common and other row widths.
TEST(SequencePadTest, MatchesNaiveLoopsForEveryPartition) {
  std::mt19937_64 random(5);
  for (int64_t dim : {0, 1, 2, 3, 32, 64, 65, 1300}) {
    for (int64_t batch = 0; batch < 20; batch += 1 + batch / 4) {
      std::vector<int64_t> lengths;
      std::vector<int64_t> splits = {0};
      for (int64_t b = 0; b < batch; ++b) {
        lengths.push_back(random() % (b == 1 ? 40 : 4));
        splits.push_back(splits.back() + lengths.back());
      }
      int64_t steps = 0;
      ASSERT_TRUE(PaddedSteps(splits, -1, &steps).ok());
      steps += random() % 3;
      std::vector<float> rows(splits.back() * dim);
      for (auto& x : rows) x = static_cast<float>(random() % 1000);
      std::vector<float> pad(dim);
      for (auto& x : pad) x = -static_cast<float>(random() % 1000);
      std::vector<float> wanted;
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t t = 0; t < steps; ++t) {
          const float* row =
              t < lengths[b] ? rows.data() + (splits[b] + t) * dim : pad.data();
          wanted.insert(wanted.end(), row, row + dim);
        }
      }
      for (int64_t step : {1, 2, 3, 7, 1000}) {
        const ParallelFor parallel = InSteps(step);
        std::vector<float> padded(wanted.size(), 7.0f);
        SequencePad(reinterpret_cast<const char*>(rows.data()), 4 * dim, splits,
                    reinterpret_cast<const char*>(pad.data()), steps,
                    reinterpret_cast<char*>(padded.data()), &parallel);
        ASSERT_EQ(padded, wanted);
        std::vector<int64_t> back_splits(batch + 1);
        ASSERT_TRUE(
            LengthsToOffsets("lengths", lengths, steps, back_splits).ok());
        ASSERT_EQ(back_splits, splits);
        std::vector<float> back(rows.size(), 7.0f);
        SequenceUnpad(reinterpret_cast<const char*>(padded.data()), 4 * dim,
                      steps, splits, reinterpret_cast<char*>(back.data()),
                      &parallel);
        ASSERT_EQ(back, rows);
      }
    }
  }
}

}  // namespace
}  // namespace lodestar
