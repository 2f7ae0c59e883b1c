#include "tf_ops/core/base/value_limit.h"

#include <gtest/gtest.h>

#include <limits>

namespace lodestar {
namespace {

TEST(ValueLimitTest, AcceptsIntegersBelowTheLimit) {
  EXPECT_TRUE(WithinLimit(int64_t{0}, 3));
  EXPECT_TRUE(WithinLimit(int64_t{2}, 3));
  EXPECT_FALSE(WithinLimit(int64_t{3}, 3));
  EXPECT_FALSE(WithinLimit(int64_t{-1}, 3));
}

TEST(ValueLimitTest, AcceptsIntegralFloats) {
  EXPECT_TRUE(WithinLimit(0.0f, 3));
  EXPECT_TRUE(WithinLimit(2.0f, 3));
  for (const float bad :
       {3.0f, -1.0f, 0.5f, std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::denorm_min()}) {
    EXPECT_FALSE(WithinLimit(bad, 3)) << bad;
  }
}

TEST(ValueLimitTest, DetectsSubnormals) {
  EXPECT_TRUE(IsSubnormal(std::numeric_limits<float>::denorm_min()));
  EXPECT_TRUE(IsSubnormal(-std::numeric_limits<float>::denorm_min()));
  EXPECT_FALSE(IsSubnormal(0.0f));
  EXPECT_FALSE(IsSubnormal(std::numeric_limits<float>::min()));
}

TEST(ValueLimitTest, DescribesTheLimit) {
  EXPECT_EQ(WantedByLimit(2), "0 or 1");
  EXPECT_EQ(WantedByLimit(10), "an integer in [0, 10)");
}

}  // namespace
}  // namespace lodestar
