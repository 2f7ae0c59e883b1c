#include "tf_ops/core/slot_rows.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tf_ops/core/multislot_format.h"

namespace lodestar {
namespace {

std::vector<ColumnSpec> Specs() {
  return {{"n", false, 1, 0},
          {"d", true, 2, 0},
          {"ids", false, -1, 0},
          {"weights", true, -1, 0}};
}

// Row i: n = i, d = (i, -i), i % 3 ids, i % 2 weights.
SlotRows Make(int64_t begin, int64_t end) {
  const MultiSlotFormat format(Specs());
  SlotRows rows(format.specs());
  for (int64_t i = begin; i < end; ++i) {
    std::string line = StrCat("1 ", i, " 2 ", i, " ", -i, " ", i % 3);
    for (int64_t k = 0; k < i % 3; ++k) line += StrCat(" ", 10 * i + k);
    line += StrCat(" ", i % 2);
    if (i % 2) line += StrCat(" ", i);
    line += '\n';
    BadRecord bad;
    const Status status =
        format.Parse(0, line.data(), line.data() + line.size(), &rows, &bad);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return rows;
}

void ExpectEqual(const SlotRows& a, const SlotRows& b) {
  ASSERT_EQ(a.num_rows(), b.num_rows());
  for (size_t c = 0; c < a.columns().size(); ++c) {
    EXPECT_EQ(a.columns()[c].ints, b.columns()[c].ints) << c;
    EXPECT_EQ(a.columns()[c].floats, b.columns()[c].floats) << c;
    EXPECT_EQ(a.columns()[c].row_splits, b.columns()[c].row_splits) << c;
  }
}

TEST(SlotRowsTest, AppendedPiecesEqualTheWhole) {
  const SlotRows whole = Make(0, 20);
  SlotRows pieces(Specs());
  pieces.Append(whole, 0, 0);
  pieces.Append(whole, 0, 7);
  pieces.Append(Make(7, 15), 0, 8);
  pieces.Append(whole, 15, 5);
  ExpectEqual(pieces, whole);
}

TEST(SlotShufflerTest, EveryRowLeavesOnceInAnOrderFixedBySeed) {
  const auto run = [](uint64_t seed) {
    SlotShuffler shuffler(16, seed);
    SlotRows out(Specs());
    for (int64_t begin = 0; begin < 100; begin += 10) {
      shuffler.Add(Make(begin, begin + 10));
      while (!shuffler.WantsMore()) shuffler.Draw(&out);
    }
    while (shuffler.Size() > 0) shuffler.Draw(&out);
    return out;
  };
  const SlotRows out = run(1);
  std::vector<int64_t> order = out.columns()[0].ints;
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(order, run(1).columns()[0].ints);
  EXPECT_NE(order, run(2).columns()[0].ints);
  SlotRows wanted(Specs());
  for (const int64_t i : order) wanted.Append(Make(i, i + 1), 0, 1);
  ExpectEqual(out, wanted);
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(order[i], i);
}

}  // namespace
}  // namespace lodestar
