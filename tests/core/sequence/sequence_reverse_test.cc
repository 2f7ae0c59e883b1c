#include "tf_ops/core/sequence/sequence_reverse.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/core/sequence/sequences.h"

namespace lodestar {
namespace {

// Compares random rows of T with a naive loop, for every partition.
template <typename T, typename Draw>
void CheckWidths(const std::vector<int64_t>& widths, const Draw& draw) {
  std::mt19937_64 random(3);
  for (const int64_t dim : widths) {
    for (int trial = 0; trial < 20; ++trial) {
      const std::vector<int64_t> splits = RandomSplits(&random, trial % 7);
      std::vector<T> rows(splits.back() * dim);
      for (auto& row : rows) row = draw(random());
      std::vector<T> wanted = rows;
      for (size_t b = 0; b + 1 < splits.size(); ++b) {
        for (int64_t r = splits[b]; r < splits[b + 1]; ++r) {
          for (int64_t c = 0; c < dim; ++c) {
            wanted[r * dim + c] =
                rows[(splits[b] + splits[b + 1] - 1 - r) * dim + c];
          }
        }
      }
      for (const int64_t step : {1, 2, 3, 1000}) {
        const ParallelFor parallel = InSteps(step);
        std::vector<T> reversed(rows.size());
        SequenceReverse(rows.data(), dim, splits, reversed.data(), &parallel);
        ASSERT_EQ(reversed, wanted);
      }
    }
  }
}

TEST(SequenceReverseTest, Strings) {
  CheckWidths<std::string>({0, 1, 2, 5},
                           [](uint64_t x) { return std::to_string(x); });
}

TEST(SequenceReverseTest, RowsOfBytes) {
  CheckWidths<char>({0, 1, 2, 3, 4, 7, 8, 16, 32, 40, 64, 128, 256, 1200},
                    [](uint64_t x) { return static_cast<char>(x); });
}

}  // namespace
}  // namespace lodestar
