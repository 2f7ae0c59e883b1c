#include "tf_ops/core/lod.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
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

std::vector<Span<int64_t>> Outputs(const LodLevels& levels, Levels* out) {
  std::vector<Span<int64_t>> spans;
  out->resize(levels.size());
  for (size_t k = 0; k < levels.size(); ++k) {
    (*out)[k].assign(levels[k].size(), -7);
    spans.push_back((*out)[k]);
  }
  return spans;
}

Levels Absolute(const Levels& levels) {
  Levels absolute;
  const LodLevels views = Views(levels);
  AbsoluteLod(views, Outputs(views, &absolute));
  return absolute;
}

Status Relative(const Levels& absolute, Levels* relative) {
  const LodLevels views = Views(absolute);
  return RelativeLod(views, Outputs(views, relative));
}

Status FromLengths(int level, const std::vector<int64_t>& lengths,
                   std::vector<int64_t>* offsets) {
  offsets->assign(lengths.size() + 1, -7);
  return LodLengthsToOffsets(level, lengths, *offsets);
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
  // Not that the level above ends elsewhere than at -1 units.
  EXPECT_EQ(Message({{0, 2}, {}}, 0),
            "`lod[1]` is empty, wanted at least one offset");
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
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> offsets;
  ASSERT_TRUE(FromLengths(0, {3, 0, 2}, &offsets).ok());
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 3, 3, 5}));
  ASSERT_TRUE(FromLengths(0, {}, &offsets).ok());
  EXPECT_EQ(offsets, (std::vector<int64_t>{0}));
  ASSERT_TRUE(FromLengths(0, {kMax - 1, 1}, &offsets).ok());
  EXPECT_EQ(offsets[2], kMax);
  EXPECT_EQ(FromLengths(2, {3, -1}, &offsets).message(),
            "`lengths[2][1]` is -1, wanted 0 or more");
  EXPECT_EQ(FromLengths(0, {kMax, 1}, &offsets).message(),
            "`lengths[0][1]` is 1, which takes the sum beyond int64");
}

TEST(LodTest, AbsoluteAndRelativeAreInverse) {
  const Levels relative = {{0, 2, 3, 6}, {0, 2, 5, 7, 10, 12, 13}};
  const Levels absolute = {{0, 5, 7, 13}, {0, 2, 5, 7, 10, 12, 13}};
  EXPECT_EQ(Absolute(relative), absolute);
  Levels back;
  ASSERT_TRUE(Relative(absolute, &back).ok());
  EXPECT_EQ(back, relative);
  EXPECT_EQ(Absolute({{0, 1, 3}, {0, 2, 2, 4}, {0, 1, 1, 5, 6}}),
            (Levels{{0, 1, 6}, {0, 1, 1, 6}, {0, 1, 1, 5, 6}}));
}

TEST(LodTest, RelativeOfEmptyUnits) {
  Levels back;
  // An empty unit at row 2 goes to the unit that begins there; one at the end
  // to the last unit.
  ASSERT_TRUE(Relative({{0, 2, 4}, {0, 2, 2, 4, 4}}, &back).ok());
  EXPECT_EQ(back[0], (std::vector<int64_t>{0, 1, 4}));
  ASSERT_TRUE(Relative({{0}, {0}}, &back).ok());
  EXPECT_EQ(back, (Levels{{0}, {0}}));
}

TEST(LodTest, WhatIsNotAbsoluteIsNamed) {
  Levels back;
  const auto message = [&](const Levels& absolute) {
    return Relative(absolute, &back).message();
  };
  EXPECT_EQ(message({{0, 3, 4}, {0, 2, 4}}),
            "`lod[0][1]`=3 is not an offset of `lod[1]`");
  EXPECT_EQ(message({{0, 3}, {0, 2, 4}}),
            "`lod[0]` ends at 3, but there are 4 rows in `lod[1]`");
  EXPECT_EQ(message({{0, 4, 2, 4}, {0, 2, 4}}),
            "`lod[0][1]`=4 is greater than `lod[0][2]`=2");
  EXPECT_EQ(message({{0, 4}, {0, 4, 2, 4}}),
            "`lod[1][1]`=4 is greater than `lod[1][2]`=2");
  EXPECT_EQ(message({{-1, 4}, {0, 4}}), "`lod[0][0]` is -1, wanted 0");
  EXPECT_EQ(message({{0, 4}, {}}),
            "`lod[1]` is empty, wanted at least one offset");
}

// Whatever the offsets, a level passes or is refused; under the address
// sanitizer this shows that nothing is read outside of them.
TEST(LodTest, RandomOffsetsAreReadWithinBounds) {
  std::mt19937_64 random(7);
  const auto any = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  int valid = 0;
  int relative_ok = 0;
  for (int trial = 0; trial < 50000; ++trial) {
    Levels levels(1 + any(3));
    for (auto& level : levels) {
      level.resize(any(4));
      for (auto& offset : level) {
        offset = any(20) == 0 ? static_cast<int64_t>(random()) : any(4);
      }
      if (any(4) != 0) std::sort(level.begin(), level.end());
      if (any(4) != 0 && !level.empty()) level[0] = 0;
    }
    const int64_t rows = any(4);
    Levels back;
    if (ValidateLod(Views(levels), rows).ok()) {
      ++valid;
      const Levels absolute = Absolute(levels);
      ASSERT_TRUE(Relative(absolute, &back).ok());
      ASSERT_EQ(Absolute(back), absolute);
    }
    if (Relative(levels, &back).ok()) {
      ++relative_ok;
      ASSERT_EQ(Absolute(back), levels);
    }
  }
  EXPECT_GT(valid, 100);
  EXPECT_GT(relative_ok, 100);
}

}  // namespace
}  // namespace lodestar
