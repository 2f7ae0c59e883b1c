#include "tf_ops/core/sequence/lod.h"

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

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

Status FromLengths(const std::vector<int64_t>& lengths, int64_t most,
                   std::vector<int64_t>* offsets) {
  offsets->assign(lengths.size() + 1, -7);
  return LengthsToOffsets("lengths", lengths, most, *offsets);
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

TEST(LodTest, RejectsLevelsThatDoNotNest) {
  EXPECT_EQ(Message({{}}, 0),
            "`lod[0]` is empty, but must have at least one offset.");
  // Not reported as an end that differs from -1 units.
  EXPECT_EQ(Message({{0, 2}, {}}, 0),
            "`lod[1]` is empty, but must have at least one offset.");
  EXPECT_EQ(Message({{1, 2}}, 2), "`lod[0][0]` must be 0, got 1.");
  EXPECT_EQ(Message({{0, 1}, {0, 3, 2, 4}}, 4),
            "`lod[0]` ends at 1, but there are 3 units in `lod[1]`.");
  EXPECT_EQ(Message({{0, 3}, {0, 3, 2, 4}}, 4),
            "`lod[1][1]`=3 is greater than `lod[1][2]`=2.");
  EXPECT_EQ(Message({{0, 3}}, 4), "`lod[0]` ends at 3, but there are 4 rows.");
  EXPECT_EQ(Message({{0, -1}}, 0),
            "`lod[0][0]`=0 is greater than `lod[0][1]`=-1.");
  const std::vector<int64_t> splits = {0, 2};
  EXPECT_EQ(ValidateSplits("row_splits", splits, 3).message(),
            "`row_splits` ends at 2, but there are 3 rows.");
}

TEST(LodTest, LengthsToOffsets) {
  std::vector<int64_t> offsets;
  ASSERT_TRUE(FromLengths({3, 0, 2}, 3, &offsets).ok());
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 3, 3, 5}));
  ASSERT_TRUE(FromLengths({}, 0, &offsets).ok());
  EXPECT_EQ(offsets, (std::vector<int64_t>{0}));
  ASSERT_TRUE(FromLengths({kMax - 1, 1}, kMax, &offsets).ok());
  EXPECT_EQ(offsets[2], kMax);
  EXPECT_EQ(FromLengths({3, -1}, 3, &offsets).message(),
            "`lengths[1]` must be in [0, 3], got -1.");
  EXPECT_EQ(FromLengths({3, 4}, 3, &offsets).message(),
            "`lengths[1]` must be in [0, 3], got 4.");
  EXPECT_EQ(FromLengths({kMax, 1}, kMax, &offsets).message(),
            "`lengths[1]` is 1, so the sum overflows int64.");
}

// Valid, nearly valid and absurd arguments.
class LodFuzzTest : public ::testing::Test {
 protected:
  int64_t Any(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  int64_t AnyNumber() {
    constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
    switch (Any(40)) {
      case 0:
        return kMin + Any(2);
      case 1:
        return kMax - Any(2);
      case 2:
        return static_cast<int64_t>(random_());
      case 3:
        return -1 - Any(4);
      default:
        return Any(5);
    }
  }

  // Nested levels over *rows rows.
  Levels Nested(int64_t num_levels, int64_t* rows) {
    Levels levels(num_levels);
    int64_t units = Any(4);
    for (auto& level : levels) {
      level = {0};
      for (int64_t i = 0; i < units; ++i) level.push_back(level[i] + Any(3));
      units = level.back();
    }
    *rows = units;
    return levels;
  }

  // Nested levels, possibly modified, or arbitrary numbers.
  Levels AnyLevels(int64_t* rows) {
    Levels levels = Nested(1 + Any(3), rows);
    if (Any(3) == 0) return levels;
    if (Any(3) == 0) {
      for (auto& level : levels) {
        level.resize(Any(5));
        for (auto& offset : level) offset = AnyNumber();
        if (Any(3) != 0) std::sort(level.begin(), level.end());
      }
    }
    std::vector<int64_t>& level = levels[Any(levels.size())];
    switch (Any(5)) {
      case 0:
        if (!level.empty()) level[Any(level.size())] = AnyNumber();
        break;
      case 1:
        level.push_back(AnyNumber());
        break;
      case 2:
        if (!level.empty()) level.pop_back();
        break;
      case 3:
        *rows = AnyNumber();
        break;
      default:
        std::reverse(level.begin(), level.end());
    }
    return levels;
  }

  std::mt19937_64 random_{7};
};

bool ModelIsValid(const std::vector<int64_t>& level, int64_t end) {
  return !level.empty() && level[0] == 0 &&
         std::is_sorted(level.begin(), level.end()) && level.back() == end;
}

bool ModelIsValid(const Levels& levels, int64_t rows) {
  for (size_t k = 0; k < levels.size(); ++k) {
    const int64_t end = k + 1 == levels.size()
                            ? rows
                            : static_cast<int64_t>(levels[k + 1].size()) - 1;
    if (!ModelIsValid(levels[k], end)) return false;
  }
  return true;
}

TEST_F(LodFuzzTest, ValidationAgreesWithTheModel) {
  int valid = 0;
  int invalid = 0;
  for (int trial = 0; trial < 100000; ++trial) {
    int64_t rows = 0;
    const Levels levels = AnyLevels(&rows);
    const bool wanted = ModelIsValid(levels, rows);
    ++(wanted ? valid : invalid);
    const Status status = ValidateLod(Views(levels), rows);
    ASSERT_EQ(status.ok(), wanted) << status.message();
    ASSERT_EQ(ValidateSplits("s", levels[0], rows).ok(),
              ModelIsValid(levels[0], rows));
  }
  EXPECT_GT(valid, 10000);
  EXPECT_GT(invalid, 10000);
}

TEST_F(LodFuzzTest, LengthsToOffsetsAgreesWithTheModel) {
  int taken = 0;
  for (int trial = 0; trial < 100000; ++trial) {
    std::vector<int64_t> lengths(Any(6));
    for (auto& length : lengths) length = AnyNumber();
    std::vector<int64_t> offsets;
    const bool ok = FromLengths(lengths, kMax, &offsets).ok();
    // The expected sum, or the first one that overflows int64.
    __int128 sum = 0;
    bool wanted = true;
    for (const int64_t length : lengths) {
      sum += length;
      wanted =
          wanted && length >= 0 && sum <= std::numeric_limits<int64_t>::max();
    }
    ASSERT_EQ(ok, wanted);
    if (!ok) continue;
    ++taken;
    ASSERT_TRUE(ModelIsValid(offsets, static_cast<int64_t>(sum)));
    for (size_t i = 0; i < lengths.size(); ++i) {
      ASSERT_EQ(offsets[i + 1] - offsets[i], lengths[i]);
    }
  }
  EXPECT_GT(taken, 10000);
}

}  // namespace
}  // namespace lodestar
