#include "tf_ops/core/table/table_step.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(TableStepTest, AnOptimizerMovesItUnlessItIsSet) {
  TableStep step;
  step.MoveTo(-1);
  EXPECT_EQ(step.value(), 1);
  step.MoveTo(7);
  EXPECT_EQ(step.value(), 7);
  // An overlapping step counted the same value; a new optimizer counts from 0.
  step.MoveTo(7);
  EXPECT_EQ(step.value(), 8);
  step.MoveTo(1);
  EXPECT_EQ(step.value(), 9);
  step.Set(100, /*own=*/true);
  step.MoveTo(-1);
  step.MoveTo(8);
  EXPECT_EQ(step.value(), 100);
  EXPECT_TRUE(step.own());
  step.Release();
  step.MoveTo(-1);
  EXPECT_EQ(step.value(), 101);
  EXPECT_FALSE(step.own());
}

TEST(TableStepTest, ACallIsOvertakenByStepsThatBeganSince) {
  TableStep step;
  step.MoveTo(5);
  EXPECT_TRUE(step.IsOvertaken(/*now=*/4, /*seen=*/5));
  EXPECT_FALSE(step.IsOvertaken(4, 4));
  EXPECT_FALSE(step.IsOvertaken(5, 4));
  // Seen before the step was set back.
  EXPECT_FALSE(step.IsOvertaken(5, 9));
  EXPECT_FALSE(step.IsOvertaken(4, 9));
}

}  // namespace
}  // namespace lodestar
