#include "tf_ops/core/records/slot_rows.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/records/slot_samples.h"

namespace lodestar {
namespace {

TEST(SlotRowsTest, AppendedPiecesEqualTheWhole) {
  const SlotRows whole = MakeRows(0, 20);
  SlotRows pieces(Specs());
  pieces.Append(whole, 0, 0);
  pieces.Append(whole, 0, 7);
  pieces.Append(MakeRows(7, 15), 0, 8);
  pieces.Append(whole, 15, 5);
  ExpectEqual(pieces, whole);
}

TEST(SlotRowsTest, FindUnfitReturnsTheBadColumn) {
  const auto broken = [](int64_t c, auto change) {
    SlotRows rows = MakeRows(0, 6);
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

TEST(SlotRowsTest, FindUnfitDoesNotOverflow) {
  ColumnSpec pair;
  pair.size = 2;
  ColumnSpec any;
  for (const int64_t count :
       {int64_t{-1}, INT64_MIN, INT64_MAX, int64_t{1} << 62}) {
    // 2 x 2^63 wraps to 0, and -1 + 1 equals the size of empty splits.
    SlotRows pairs({pair});
    pairs.AddRows(count);
    EXPECT_EQ(pairs.FindUnfit({pair}), 0);
    SlotRows anys({any});
    anys.mutable_column(0)->row_splits.clear();
    anys.AddRows(count);
    EXPECT_EQ(anys.FindUnfit({any}), 0);
  }
  pair.size = int64_t{1} << 30;
  SlotRows rows({pair});
  rows.AddRows(int64_t{1} << 34);
  EXPECT_EQ(rows.FindUnfit({pair}), 0);
}

TEST(SlotRowsTest, FindUnfitChecksLengths) {
  ColumnSpec ids;
  ids.multiple = 2;
  ColumnSpec weights;
  weights.is_float = true;
  weights.weighs = 0;
  const auto unfit = [&](std::vector<int64_t> id_splits,
                         std::vector<int64_t> weight_splits) {
    SlotRows rows({ids, weights});
    SlotColumn* column = rows.mutable_column(0);
    column->ints.resize(id_splits.back());
    column->row_splits = std::move(id_splits);
    column = rows.mutable_column(1);
    column->floats.resize(weight_splits.back());
    column->row_splits = std::move(weight_splits);
    rows.AddRows(2);
    return rows.FindUnfit({ids, weights});
  };
  EXPECT_EQ(unfit({0, 2, 6}, {0, 2, 6}), -1);
  EXPECT_EQ(unfit({0, 3, 6}, {0, 3, 6}), 0);
  EXPECT_EQ(unfit({0, 2, 6}, {0, 3, 6}), 1);
}

TEST(SlotRowsTest, ReserveIsBounded) {
  SlotRows rows({ColumnSpec()});
  rows.mutable_column(0)->ints.resize(1 << 20);
  rows.Reserve(64);
  EXPECT_LE(rows.Bytes(), 64 << 20);
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
            "slot 'w': found 3 weights, expected one for each of the 2 ids of "
            "slot 'ids'");
  EXPECT_EQ(CheckLengths(specs, {2, 2, 6}).message(),
            "slot 'd': found 6 values, expected a multiple of 4");
}

}  // namespace
}  // namespace lodestar
