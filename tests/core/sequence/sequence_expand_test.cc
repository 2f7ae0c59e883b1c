#include "tf_ops/core/sequence/sequence_expand.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/core/sequence/sequences.h"

namespace lodestar {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(SequenceExpandTest, TheDocumentedExample) {
  const std::vector<std::string> rows = {"a", "b", "c", "d"};
  const std::vector<int64_t> splits = {0, 2, 4};
  const std::vector<int64_t> ref_splits = {0, 2, 5};
  std::vector<int64_t> starts(3);
  ASSERT_TRUE(ExpandedStarts(splits, ref_splits, starts).ok());
  EXPECT_EQ(starts, (std::vector<int64_t>{0, 4, 10}));
  std::vector<int64_t> expanded_splits(6);
  ExpandedSplits(splits, ref_splits, starts, expanded_splits, nullptr);
  EXPECT_EQ(expanded_splits, (std::vector<int64_t>{0, 2, 4, 6, 8, 10}));
  std::vector<std::string> expanded(10);
  SequenceExpand<std::string>(rows.data(), 1, splits, starts, expanded.data(),
                              nullptr);
  EXPECT_EQ(expanded, (std::vector<std::string>{"a", "b", "a", "b", "c", "d",
                                                "c", "d", "c", "d"}));
}

// Compares random units with a naive loop, unpartitioned and with every
// partition, for common and other row widths.
TEST(SequenceExpandTest, MatchesNaiveLoopsForEveryPartition) {
  std::mt19937_64 random(3);
  for (int64_t dim : {0, 1, 2, 3, 32, 64, 65, 300}) {
    for (int64_t units = 0; units < 7; ++units) {
      const std::vector<int64_t> splits = RandomSplits(&random, units);
      const std::vector<int64_t> ref_splits = RandomSplits(&random, units);
      std::vector<float> rows(splits.back() * dim);
      for (auto& x : rows) x = static_cast<float>(random() % 1000);
      std::vector<float> wanted;
      std::vector<int64_t> wanted_splits = {0};
      for (int64_t i = 0; i < units; ++i) {
        for (int64_t k = ref_splits[i]; k < ref_splits[i + 1]; ++k) {
          wanted.insert(wanted.end(), rows.begin() + splits[i] * dim,
                        rows.begin() + splits[i + 1] * dim);
          wanted_splits.push_back(wanted_splits.back() + splits[i + 1] -
                                  splits[i]);
        }
      }
      std::vector<float> gradient(wanted.size());
      for (auto& x : gradient) x = static_cast<float>(random() % 100);
      std::vector<float> wanted_gradient(rows.size());
      const float* g = gradient.data();
      for (int64_t i = 0; i < units; ++i) {
        for (int64_t k = ref_splits[i]; k < ref_splits[i + 1]; ++k) {
          for (int64_t j = splits[i] * dim; j < splits[i + 1] * dim; ++j) {
            wanted_gradient[j] += *g++;
          }
        }
      }
      std::vector<int64_t> starts(units + 1);
      ASSERT_TRUE(ExpandedStarts(splits, ref_splits, starts).ok());
      ASSERT_EQ(starts.back(), wanted_splits.back());
      for (int64_t step : {1, 2, 3, 7, 1000}) {
        const ParallelFor parallel = InSteps(step);
        std::vector<int64_t> expanded_splits(wanted_splits.size());
        ExpandedSplits(splits, ref_splits, starts, expanded_splits, &parallel);
        ASSERT_EQ(expanded_splits, wanted_splits);
        std::vector<float> expanded(wanted.size(), -1.0f);
        SequenceExpand(reinterpret_cast<const char*>(rows.data()), 4 * dim,
                       splits, starts, reinterpret_cast<char*>(expanded.data()),
                       &parallel);
        ASSERT_EQ(expanded, wanted);
        std::vector<float> back(rows.size(), -1.0f);
        SequenceExpandGradient(gradient.data(), dim, splits, ref_splits, starts,
                               back.data(), &parallel);
        ASSERT_EQ(back, wanted_gradient);
        // The first `units` rows, one per unit.
        if (splits.back() < units) continue;
        std::vector<float> repeated(ref_splits.back() * dim, -1.0f);
        SequenceExpandAs(reinterpret_cast<const char*>(rows.data()), 4 * dim,
                         ref_splits, reinterpret_cast<char*>(repeated.data()),
                         &parallel);
        for (int64_t i = 0; i < units; ++i) {
          for (int64_t k = ref_splits[i]; k < ref_splits[i + 1]; ++k) {
            for (int64_t c = 0; c < dim; ++c) {
              ASSERT_EQ(repeated[k * dim + c], rows[i * dim + c]);
            }
          }
        }
      }
    }
  }
}

TEST(SequenceExpandTest, RejectsOverflow) {
  std::vector<int64_t> starts(3);
  const auto message = [&](std::vector<int64_t> splits,
                           std::vector<int64_t> ref_splits) {
    return ExpandedStarts(splits, ref_splits, starts).message();
  };
  EXPECT_EQ(message({0, 1, 3}, {0, 1, kMax / 2}), "");
  EXPECT_EQ(message({0, 2, 4}, {0, 1, kMax}),
            StrCat("sequence 1 of 2 rows, repeated ", kMax - 1,
                   " times, overflows the number of rows."));
  EXPECT_EQ(message({0, kMax, kMax}, {0, 1, kMax}), "");
  EXPECT_NE(message({0, kMax, kMax}, {0, 2, 2}), "");
}

}  // namespace
}  // namespace lodestar
