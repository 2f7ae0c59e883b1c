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

TEST(SlotShufflerTest, ARestoredWindowGivesTheSameDraws) {
  SlotShuffler shuffler(16, 3);
  for (int64_t begin = 0; begin < 20; begin += 5) {
    shuffler.Add(Make(begin, begin + 5));
  }
  SlotRows drawn(Specs());
  for (int i = 0; i < 7; ++i) shuffler.Draw(&drawn);
  const SlotRows window = shuffler.Window(Specs());
  EXPECT_EQ(window.num_rows(), 13);
  EXPECT_EQ(window.FindUnfit(Specs()), -1);
  SlotShuffler again(16, 0);
  again.Restore(shuffler.state(), window);
  SlotRows wanted(Specs());
  SlotRows found(Specs());
  while (shuffler.Size() > 0) {
    shuffler.Draw(&wanted);
    again.Draw(&found);
  }
  EXPECT_EQ(again.Size(), 0);
  ExpectEqual(found, wanted);
}

TEST(SlotRowsTest, ColumnsThatDoNotFitAreNamed) {
  const auto broken = [](int64_t c, auto change) {
    SlotRows rows = Make(0, 6);
    change(rows.mutable_column(c));
    return rows.FindUnfit(Specs());
  };
  EXPECT_EQ(broken(0, [](SlotColumn*) {}), -1);
  EXPECT_EQ(broken(0, [](SlotColumn* c) { c->ints.pop_back(); }), 0);
  EXPECT_EQ(broken(0, [](SlotColumn* c) { c->row_splits.push_back(0); }), 0);
  EXPECT_EQ(broken(1, [](SlotColumn* c) { c->ints.push_back(1); }), 1);
  EXPECT_EQ(broken(2, [](SlotColumn* c) { c->row_splits.pop_back(); }), 2);
  EXPECT_EQ(broken(2, [](SlotColumn* c) { c->row_splits[0] = 1; }), 2);
  EXPECT_EQ(broken(2, [](SlotColumn* c) { c->row_splits[1] = 1000; }), 2);
  EXPECT_EQ(broken(3, [](SlotColumn* c) { c->floats.push_back(1); }), 3);
}

TEST(SlotRowsTest, LengthsAreCheckedBetweenColumns) {
  std::vector<ColumnSpec> specs(3);
  specs[0].name = "ids";
  specs[1].name = "w";
  specs[1].weighs = 0;
  specs[2].name = "d";
  specs[2].multiple = 4;
  EXPECT_TRUE(CheckLengths(specs, {2, 2, 8}).ok());
  EXPECT_TRUE(CheckLengths(specs, {0, 0, 0}).ok());
  EXPECT_EQ(CheckLengths(specs, {2, 3, 8}).message(),
            "slot 'w': found 3 weights, wanted one for each of the 2 ids of "
            "slot 'ids'");
  EXPECT_EQ(CheckLengths(specs, {2, 2, 6}).message(),
            "slot 'd': found 6 values, wanted a multiple of 4");
}

}  // namespace
}  // namespace lodestar
