#include "tf_ops/core/slot_rows.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/slot_samples.h"

namespace lodestar {
namespace {

TEST(SlotRowsTest, AppendedPiecesEqualTheWhole) {
  const SlotRows whole = Make(0, 20);
  SlotRows pieces(Specs());
  pieces.Append(whole, 0, 0);
  pieces.Append(whole, 0, 7);
  pieces.Append(Make(7, 15), 0, 8);
  pieces.Append(whole, 15, 5);
  ExpectEqual(pieces, whole);
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
