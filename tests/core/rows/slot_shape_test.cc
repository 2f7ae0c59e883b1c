#include "tf_ops/core/rows/slot_shape.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(SlotShapeTest, SlotsHaveOneValuePerColumnOrRow) {
  EXPECT_EQ(SlotShape().Size(32), 0);
  EXPECT_EQ(SlotShape({2}).Width(32), 32);
  EXPECT_EQ(SlotShape({2}).Size(32), 64);
  const SlotShape row_wise = {2, /*row_wise=*/true};
  EXPECT_EQ(row_wise.Width(32), 1);
  EXPECT_EQ(row_wise.Size(32), 2);
  EXPECT_EQ(row_wise.Size(1), 2);
}

}  // namespace
}  // namespace lodestar
