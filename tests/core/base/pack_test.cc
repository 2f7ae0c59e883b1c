#include "tf_ops/core/base/pack.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace lodestar {
namespace {

TEST(PackTest, IsAlignedForOneLoadOfAtMost16Bytes) {
  EXPECT_EQ(sizeof(Pack<float, 4>), 16u);
  EXPECT_EQ(alignof(Pack<float, 4>), 16u);
  EXPECT_EQ(alignof(Pack<float, 1>), 4u);
  EXPECT_EQ(sizeof(Pack<int64_t, 4>), 32u);
  EXPECT_EQ(alignof(Pack<int64_t, 4>), 16u);
}

}  // namespace
}  // namespace lodestar
