#include "tf_ops/core/lod.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lodestar {
namespace {

using Levels = std::vector<std::vector<int64_t>>;

LodLevels Views(const Levels& levels) {
  LodLevels views;
  for (const auto& level : levels) views.push_back(level);
  return views;
}

std::string Message(const Levels& levels, int64_t rows) {
  return ValidateLod(Views(levels), rows).message();
}

TEST(LodTest, ValidLevels) {
  EXPECT_EQ(Message({}, 5), "");
  EXPECT_EQ(Message({{0}}, 0), "");
  EXPECT_EQ(Message({{0, 0, 0}}, 0), "");
  EXPECT_EQ(Message({{0, 2, 3}, {0, 3, 5, 9}}, 9), "");
  EXPECT_EQ(Message({{0, 2, 2, 5}, {0, 1, 3, 4, 4, 7}}, 7), "");
}

TEST(LodTest, WhatDoesNotNestIsNamed) {
  EXPECT_EQ(Message({{}}, 0), "`lod[0]` is empty, wanted at least one offset");
  EXPECT_EQ(Message({{1, 2}}, 2), "`lod[0][0]` is 1, wanted 0");
  EXPECT_EQ(Message({{0, 1}, {0, 3, 2, 4}}, 4),
            "`lod[0]` ends at 1, but there are 3 units in `lod[1]`");
  EXPECT_EQ(Message({{0, 3}, {0, 3, 2, 4}}, 4),
            "`lod[1][1]`=3 is greater than `lod[1][2]`=2");
  EXPECT_EQ(Message({{0, 3}}, 4), "`lod[0]` ends at 3, but there are 4 rows");
  EXPECT_EQ(Message({{0, -1}}, 0),
            "`lod[0][0]`=0 is greater than "
            "`lod[0][1]`=-1");
  const std::vector<int64_t> splits = {0, 2};
  EXPECT_EQ(ValidateSplits("row_splits", splits, 3).message(),
            "`row_splits` ends at 2, but there are 3 rows");
}

TEST(LodTest, LengthsBecomeOffsets) {
  std::vector<int64_t> offsets;
  const std::vector<int64_t> lengths = {3, 0, 2};
  ASSERT_TRUE(LodLengthsToOffsets(0, lengths, &offsets).ok());
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 3, 3, 5}));
  const std::vector<int64_t> negative = {3, -1};
  EXPECT_EQ(LodLengthsToOffsets(2, negative, &offsets).message(),
            "`lengths[2][1]` is -1, wanted 0 or more");
  const std::vector<int64_t> huge = {std::numeric_limits<int64_t>::max(), 1};
  EXPECT_FALSE(LodLengthsToOffsets(0, huge, &offsets).ok());
}

TEST(LodTest, AbsoluteAndRelativeAreInverse) {
  const Levels relative = {{0, 2, 3, 6}, {0, 2, 5, 7, 10, 12, 13}};
  const Levels absolute = {{0, 5, 7, 13}, {0, 2, 5, 7, 10, 12, 13}};
  EXPECT_EQ(AbsoluteLod(Views(relative)), absolute);
  Levels back;
  ASSERT_TRUE(RelativeLod(Views(absolute), &back).ok());
  EXPECT_EQ(back, relative);
}

TEST(LodTest, RelativeOfEmptyUnits) {
  Levels back;
  // An empty unit at row 2 goes to the unit that begins there; one at the end
  // to the last unit.
  ASSERT_TRUE(RelativeLod(Views({{0, 2, 4}, {0, 2, 2, 4, 4}}), &back).ok());
  EXPECT_EQ(back[0], (std::vector<int64_t>{0, 1, 4}));
  EXPECT_EQ(RelativeLod(Views({{0, 3}, {0, 2, 4}}), &back).message(),
            "`lod[0][1]`=3 is not an offset of `lod[1]`");
}

}  // namespace
}  // namespace lodestar
