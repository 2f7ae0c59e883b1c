#include "tf_ops/core/rows/snapshot_record.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(SnapshotRowLayoutTest, PartsArePaddedToEightBytes) {
  const SnapshotRowLayout layout(3, RowType::kFloat32, {2});
  EXPECT_EQ(layout.values(), 24);
  EXPECT_EQ(layout.value_bytes(), 12);
  EXPECT_EQ(layout.slot(0), 24 + 16);
  EXPECT_EQ(layout.slot(1), 24 + 32);
  EXPECT_EQ(layout.bytes(), 24 + 48);
}

TEST(SnapshotRowLayoutTest, SlotsAreFloats) {
  const SnapshotRowLayout layout(4, RowType::kBFloat16, {1});
  EXPECT_EQ(layout.value_bytes(), 8);
  EXPECT_EQ(layout.slot_bytes(), 16);
  EXPECT_EQ(layout.bytes(), 24 + 8 + 16);
}

TEST(SnapshotRowLayoutTest, RowWiseSlotsHaveOneValue) {
  const SnapshotRowLayout layout(32, RowType::kFloat32, {2, /*row_wise=*/true});
  EXPECT_EQ(layout.slots(), 2);
  EXPECT_EQ(layout.slot_width(), 1);
  EXPECT_EQ(layout.slot_bytes(), 4);
  EXPECT_EQ(layout.slot(1), 24 + 128 + 8);
  EXPECT_EQ(layout.bytes(), 24 + 128 + 16);
}

}  // namespace
}  // namespace lodestar
