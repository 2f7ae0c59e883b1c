#include "tf_ops/core/sequence/sequence_units.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace lodestar {
namespace {

TEST(SequenceUnitsTest, FindsTheSequenceOfAUnit) {
  const std::vector<int64_t> splits = {0, 2, 2, 5};
  EXPECT_EQ(SequenceUnits(splits), 8);
  const int64_t wanted[] = {0, 1, 1, 1, 2, 3, 3, 3, 3};
  for (int64_t unit = 0; unit <= 8; ++unit) {
    EXPECT_EQ(SequenceFrom(splits, unit), wanted[unit]) << unit;
  }
}

TEST(SequenceUnitsTest, PiecesCoverRowsAndBeginningsOnce) {
  std::mt19937_64 rng(4);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> splits = {0};
    for (int64_t b = rng() % 6; b-- > 0;) {
      splits.push_back(splits.back() + rng() % 4);
    }
    const int64_t batch = static_cast<int64_t>(splits.size()) - 1;
    const int64_t step = 1 + rng() % 5;
    const ParallelFor in_steps =
        [step](int64_t total, int64_t,
               const std::function<void(int64_t, int64_t)>& body) {
          for (int64_t i = 0; i < total; i += step) {
            body(i, std::min(i + step, total));
          }
        };
    std::vector<int> rows(splits.back(), 0);
    std::vector<int> begun(batch, 0);
    ForSequencePieces(&in_steps, splits, 1,
                      [&](int64_t b, int64_t first, int64_t last, bool begins) {
                        begun[b] += begins;
                        EXPECT_GE(first, splits[b]);
                        EXPECT_LE(last, splits[b + 1]);
                        for (int64_t r = first; r < last; ++r) ++rows[r];
                      });
    EXPECT_EQ(rows, std::vector<int>(rows.size(), 1));
    EXPECT_EQ(begun, std::vector<int>(batch, 1));
  }
}

}  // namespace
}  // namespace lodestar
