#include "tf_ops/core/sequence/sequence_context.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "tests/core/sequence/sequences.h"

namespace lodestar {
namespace {

std::vector<int64_t> Windows(const std::vector<int64_t>& rows,
                             const std::vector<int64_t>& splits, int64_t start,
                             int64_t size) {
  std::vector<int64_t> windows(rows.size() * size, -7);
  SequenceContext<int64_t>(rows.data(), 1, splits, start, size, 0,
                           windows.data(), nullptr);
  return windows;
}

TEST(SequenceContextTest, TheDocumentedExample) {
  EXPECT_EQ(Windows({1, 2, 3, 4, 5}, {0, 3, 5}, 0, 2),
            (std::vector<int64_t>{1, 2, 2, 3, 3, 0, 4, 5, 5, 0}));
}

TEST(SequenceContextTest, WindowsOutsideTheSequenceArePadding) {
  for (int64_t start :
       {int64_t{2}, int64_t{-4}, kMaxContextStart, -kMaxContextStart}) {
    EXPECT_EQ(Windows({1, 2}, {0, 2}, start, 3), (std::vector<int64_t>(6, 0)));
    std::vector<double> gradient(6, 1.0);
    std::vector<double> rows_gradient(2, 7.0);
    const std::vector<int64_t> splits = {0, 2};
    SequenceContextGradient<double>(gradient.data(), 1, splits, start, 3,
                                    rows_gradient.data(), nullptr);
    EXPECT_EQ(rows_gradient, (std::vector<double>{0.0, 0.0}));
  }
}

// Compares random batches with a naive loop, unpartitioned and with every
// partition.
TEST(SequenceContextTest, MatchesNaiveLoopsForEveryPartition) {
  std::mt19937_64 random(5);
  const ParallelFor in_pieces = InSteps(1);
  for (int trial = 0; trial < 300; ++trial) {
    const std::vector<int64_t> splits = RandomSplits(&random, random() % 6);
    const int64_t n = splits.back();
    const int64_t dim = std::vector<int64_t>{0, 1, 3, 65}[random() % 4];
    const int64_t size = 1 + static_cast<int64_t>(random() % 7);
    const int64_t start = static_cast<int64_t>(random() % 13) - 6;
    std::vector<double> rows(n * dim);
    for (auto& x : rows) x = static_cast<double>(random() % 100);
    std::vector<double> gradient(n * size * dim);
    for (auto& x : gradient) x = static_cast<double>(random() % 100);
    std::vector<double> wanted(gradient.size(), 9.0);
    std::vector<double> wanted_gradient(rows.size(), 0.0);
    for (size_t b = 0; b + 1 < splits.size(); ++b) {
      for (int64_t r = splits[b]; r < splits[b + 1]; ++r) {
        for (int64_t j = 0; j < size; ++j) {
          const int64_t source = r + start + j;
          if (source < splits[b] || source >= splits[b + 1]) continue;
          for (int64_t c = 0; c < dim; ++c) {
            wanted[(r * size + j) * dim + c] = rows[source * dim + c];
            wanted_gradient[source * dim + c] +=
                gradient[(r * size + j) * dim + c];
          }
        }
      }
    }
    for (const ParallelFor* parallel :
         {static_cast<const ParallelFor*>(nullptr), &in_pieces}) {
      std::vector<double> windows(gradient.size(), -7.0);
      SequenceContext<double>(rows.data(), dim, splits, start, size, 9.0,
                              windows.data(), parallel);
      EXPECT_EQ(windows, wanted);
      std::vector<double> rows_gradient(rows.size(), -7.0);
      SequenceContextGradient<double>(gradient.data(), dim, splits, start, size,
                                      rows_gradient.data(), parallel);
      EXPECT_EQ(rows_gradient, wanted_gradient);
    }
  }
}

}  // namespace
}  // namespace lodestar
