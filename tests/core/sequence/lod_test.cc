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
  return LengthsToOffsets(StrCat("lengths[", level, "]"), lengths, kAnyLength,
                          *offsets);
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
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> offsets;
  ASSERT_TRUE(FromLengths(0, {3, 0, 2}, &offsets).ok());
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 3, 3, 5}));
  ASSERT_TRUE(FromLengths(0, {}, &offsets).ok());
  EXPECT_EQ(offsets, (std::vector<int64_t>{0}));
  ASSERT_TRUE(FromLengths(0, {kMax - 1, 1}, &offsets).ok());
  EXPECT_EQ(offsets[2], kMax);
  EXPECT_EQ(FromLengths(2, {3, -1}, &offsets).message(),
            "`lengths[2][1]` must be at least 0, got -1.");
  EXPECT_EQ(FromLengths(0, {kMax, 1}, &offsets).message(),
            "`lengths[0][1]` is 1, so the sum overflows int64.");
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
  // An empty unit at row 2 belongs to the unit that begins there; one at the
  // end belongs to the last unit.
  ASSERT_TRUE(Relative({{0, 2, 4}, {0, 2, 2, 4, 4}}, &back).ok());
  EXPECT_EQ(back[0], (std::vector<int64_t>{0, 1, 4}));
  ASSERT_TRUE(Relative({{0}, {0}}, &back).ok());
  EXPECT_EQ(back, (Levels{{0}, {0}}));
}

TEST(LodTest, RelativeRejectsInvalidLevels) {
  Levels back;
  const auto message = [&](const Levels& absolute) {
    return Relative(absolute, &back).message();
  };
  EXPECT_EQ(message({{0, 3, 4}, {0, 2, 4}}),
            "`lod[0][1]`=3 is not an offset of `lod[1]`.");
  EXPECT_EQ(message({{0, 3}, {0, 2, 4}}),
            "`lod[0]` ends at 3, but there are 4 rows in `lod[1]`.");
  EXPECT_EQ(message({{0, 4, 2, 4}, {0, 2, 4}}),
            "`lod[0][1]`=4 is greater than `lod[0][2]`=2.");
  EXPECT_EQ(message({{0, 4}, {0, 4, 2, 4}}),
            "`lod[1][1]`=4 is greater than `lod[1][2]`=2.");
  EXPECT_EQ(message({{-1, 4}, {0, 4}}), "`lod[0][0]` must be 0, got -1.");
  EXPECT_EQ(message({{0, 4}, {}}),
            "`lod[1]` is empty, but must have at least one offset.");
  // Empty units that no upper unit contains.
  EXPECT_EQ(message({{0}, {0, 0, 0}}),
            "`lod[0]` has no unit, but there are 2 units in `lod[1]`.");
}

Status Slice(const Levels& levels, int64_t rows, int64_t level, int64_t begin,
             int64_t end, std::vector<LodRange>* ranges) {
  ranges->clear();
  return SliceLod(Views(levels), rows, level, begin, end, ranges);
}

TEST(LodTest, SlicesOfEachLevel) {
  const Levels levels = {{0, 2, 3, 6}, {0, 2, 5, 7, 10, 12, 13}};
  std::vector<LodRange> ranges;
  ASSERT_TRUE(Slice(levels, 13, 0, 1, 3, &ranges).ok());
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[1].begin, 2);
  EXPECT_EQ(ranges[1].end, 6);
  EXPECT_EQ(ranges[2].begin, 5);
  EXPECT_EQ(ranges[2].end, 13);
  ASSERT_TRUE(Slice(levels, 13, 1, 6, 6, &ranges).ok());
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[1].begin, 13);
  EXPECT_EQ(ranges[1].end, 13);
}

TEST(LodTest, RejectsInvalidSlices) {
  std::vector<LodRange> ranges;
  const auto message = [&](const Levels& levels, int64_t begin, int64_t end) {
    return Slice(levels, 3, 0, begin, end, &ranges).message();
  };
  EXPECT_EQ(message({{0, 3}}, -1, 1), "`begin` must be at least 0, got -1.");
  EXPECT_EQ(message({{0, 3}}, 1, 0), "`begin`=1 is greater than `end`=0.");
  EXPECT_EQ(message({{0, 3}}, 0, 2),
            "`end` is 2, but there are 1 units in `lod[0]`.");
  EXPECT_EQ(message({{}}, 0, 0),
            "`lod[0]` is empty, but must have at least one offset.");
  EXPECT_EQ(message({{0, 2, 1}}, 0, 2),
            "`lod[0][1]`=2 is greater than `lod[0][2]`=1.");
  EXPECT_EQ(message({{0, 4}}, 0, 1), "`lod[0][1]` must be in [0, 3], got 4.");
  EXPECT_EQ(message({{-1, 3}}, 0, 1), "`lod[0][0]` must be in [0, 3], got -1.");
  // Offsets outside the slice are not read.
  EXPECT_EQ(message({{0, 3, -9}}, 0, 1), "");
}

Status FromSparse(const std::vector<int64_t>& indices,
                  const std::vector<int64_t>& shape, Levels* levels,
                  bool drop_columns = false) {
  return LodFromSparse(indices, shape, drop_columns, levels);
}

TEST(LodTest, ColumnsOfSparseTensorsAreDropped) {
  // A diagonal, and a row of two values with a gap before and between them.
  Levels levels;
  ASSERT_TRUE(FromSparse({0, 0, 1, 1, 2, 2}, {4, 3}, &levels, true).ok());
  EXPECT_EQ(levels, (Levels{{0, 1, 2, 3, 3}}));
  ASSERT_TRUE(FromSparse({1, 3, 1, 8}, {3, 9}, &levels, true).ok());
  EXPECT_EQ(levels, (Levels{{0, 0, 2, 2}}));
  // Order and bounds are still checked.
  EXPECT_FALSE(FromSparse({1, 3, 1, 3}, {3, 9}, &levels, true).ok());
  EXPECT_FALSE(FromSparse({1, 8, 1, 3}, {3, 9}, &levels, true).ok());
  EXPECT_FALSE(FromSparse({1, 9}, {3, 9}, &levels, true).ok());
}

TEST(LodTest, LevelsOfSparseTensors) {
  Levels levels;
  ASSERT_TRUE(FromSparse({0, 0, 0, 1, 2, 0}, {4, 2}, &levels).ok());
  EXPECT_EQ(levels, (Levels{{0, 2, 2, 3, 3}}));
  ASSERT_TRUE(FromSparse({}, {0, 5}, &levels).ok());
  EXPECT_EQ(levels, (Levels{{0}}));
  ASSERT_TRUE(FromSparse({}, {2, 5, 5}, &levels).ok());
  EXPECT_EQ(levels, (Levels{{0, 0, 0}, {0}}));
  // Empty units: two in unit 0, all of units 1 and 3.
  ASSERT_TRUE(FromSparse({0, 2, 0, 2, 0, 0, 2, 0, 1}, {4, 5, 2}, &levels).ok());
  EXPECT_EQ(levels, (Levels{{0, 3, 3, 4, 4}, {0, 0, 0, 1, 3}}));
}

TEST(LodTest, RejectsInvalidSparseTensors) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  Levels levels;
  const auto message = [&](const std::vector<int64_t>& indices,
                           const std::vector<int64_t>& shape) {
    return FromSparse(indices, shape, &levels).message();
  };
  EXPECT_EQ(message({0, 0, 0, 0}, {1, 2}),
            "`indices[1]` repeats `indices[0]`.");
  EXPECT_EQ(
      message({1, 0, 0, 0}, {2, 2}),
      "`indices[1][0]` is 0 after 1. Indices must be in row-major order.");
  EXPECT_EQ(message({0, 1}, {1, 2}),
            "`indices[0][1]` must be 0, got 1. The values of a unit must be "
            "contiguous.");
  EXPECT_EQ(message({0, 2}, {1, 2}),
            "`indices[0][1]` must be in [0, 2), got 2.");
  EXPECT_EQ(message({}, {2, -1}),
            "`dense_shape[1]` must be at least 0, got -1.");
  EXPECT_EQ(FromSparse({}, {kMax, 1}, &levels).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(FromSparse({kMax - 1, 0}, {kMax, 1}, &levels).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(FromSparse({0, kMax - 1, 0}, {1, kMax, 1}, &levels).code(),
            StatusCode::kResourceExhausted);
}

// Valid, nearly valid and absurd arguments.
class LodFuzzTest : public ::testing::Test {
 protected:
  int64_t Any(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  int64_t AnyNumber() {
    constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
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

TEST_F(LodFuzzTest, AbsoluteAndRelativeAgree) {
  int valid = 0;
  int relative_ok = 0;
  for (int trial = 0; trial < 100000; ++trial) {
    int64_t rows = 0;
    const Levels levels = AnyLevels(&rows);
    Levels back;
    if (ValidateLod(Views(levels), rows).ok()) {
      ++valid;
      const Levels absolute = Absolute(levels);
      for (const auto& level : absolute) {
        ASSERT_TRUE(ModelIsValid(level, rows));
      }
      ASSERT_TRUE(Relative(absolute, &back).ok());
      ASSERT_EQ(Absolute(back), absolute);
    }
    if (Relative(levels, &back).ok()) {
      ++relative_ok;
      ASSERT_TRUE(ModelIsValid(back, levels.back().back()));
      ASSERT_EQ(Absolute(back), levels);
    }
  }
  EXPECT_GT(valid, 10000);
  EXPECT_GT(relative_ok, 10000);
}

TEST_F(LodFuzzTest, LengthsToOffsetsAgreesWithTheModel) {
  int taken = 0;
  for (int trial = 0; trial < 100000; ++trial) {
    std::vector<int64_t> lengths(Any(6));
    for (auto& length : lengths) length = AnyNumber();
    std::vector<int64_t> offsets;
    const bool ok = FromLengths(0, lengths, &offsets).ok();
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

TEST_F(LodFuzzTest, SlicesAreInBounds) {
  int taken = 0;
  for (int trial = 0; trial < 100000; ++trial) {
    int64_t rows = 0;
    const Levels levels = AnyLevels(&rows);
    const int64_t level = Any(levels.size());
    const int64_t begin = AnyNumber();
    const int64_t end = AnyNumber();
    std::vector<LodRange> ranges;
    const bool ok = Slice(levels, rows, level, begin, end, &ranges).ok();
    if (ModelIsValid(levels, rows)) {
      const auto units = static_cast<int64_t>(levels[level].size()) - 1;
      ASSERT_EQ(ok, 0 <= begin && begin <= end && end <= units);
    }
    if (!ok) continue;
    ++taken;
    ASSERT_EQ(ranges.size(), levels.size() - level + 1);
    for (size_t j = 0; j < ranges.size(); ++j) {
      const size_t k = level + j;
      const int64_t limit = k == levels.size()
                                ? rows
                                : static_cast<int64_t>(levels[k].size()) - 1;
      ASSERT_LE(0, ranges[j].begin);
      ASSERT_LE(ranges[j].begin, ranges[j].end);
      ASSERT_LE(ranges[j].end, limit);
      if (j > 0) {
        ASSERT_EQ(ranges[j].begin, levels[k - 1][ranges[j - 1].begin]);
        ASSERT_EQ(ranges[j].end, levels[k - 1][ranges[j - 1].end]);
      }
    }
  }
  EXPECT_GT(taken, 10000);
}

// Appends the indices of `levels` as a sparse tensor, row-major. `unit` ends at
// `k`.
void AppendIndices(const Levels& levels, size_t k, int64_t unit,
                   std::vector<int64_t>* prefix,
                   std::vector<int64_t>* indices) {
  for (int64_t i = levels[k][unit]; i < levels[k][unit + 1]; ++i) {
    prefix->push_back(i - levels[k][unit]);
    if (k + 1 == levels.size()) {
      indices->insert(indices->end(), prefix->begin(), prefix->end());
    } else {
      AppendIndices(levels, k + 1, i, prefix, indices);
    }
    prefix->pop_back();
  }
}

TEST_F(LodFuzzTest, SparseTensorsRoundTrip) {
  int taken = 0;
  int whole = 0;
  for (int trial = 0; trial < 50000; ++trial) {
    int64_t rows = 0;
    const Levels levels = Nested(1 + Any(3), &rows);
    const auto units = static_cast<int64_t>(levels[0].size()) - 1;
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < units; ++i) {
      std::vector<int64_t> prefix = {i};
      AppendIndices(levels, 0, i, &prefix, &indices);
    }
    std::vector<int64_t> shape(levels.size() + 1, 5);
    shape[0] = units;
    const bool changed = Any(2) == 0;
    // Bounded, because gigabytes of empty units are a valid result.
    const auto number = [&] {
      const int64_t any = AnyNumber();
      return any < (int64_t{1} << 61) ? std::min<int64_t>(any, 1000) : any;
    };
    if (changed && !indices.empty()) indices[Any(indices.size())] = number();
    if (changed && Any(2) == 0) shape[Any(shape.size())] = number();
    Levels back;
    if (!LodFromSparse(indices, shape, false, &back).ok()) {
      ASSERT_TRUE(changed);
      continue;
    }
    ++taken;
    ASSERT_TRUE(ModelIsValid(back, rows));
    ASSERT_EQ(static_cast<int64_t>(back[0].size()) - 1, shape[0]);
    // Without empty units at the ends it equals the original.
    std::vector<int64_t> again;
    for (int64_t i = 0; i < shape[0]; ++i) {
      std::vector<int64_t> prefix = {i};
      AppendIndices(back, 0, i, &prefix, &again);
    }
    ASSERT_EQ(again, indices);
    whole += back == levels;
  }
  EXPECT_GT(taken, 10000);
  EXPECT_GT(whole, 1000);
}

}  // namespace
}  // namespace lodestar
