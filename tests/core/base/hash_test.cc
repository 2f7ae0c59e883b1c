#include "tf_ops/core/base/hash.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(HashTest, Mix64IsFrozen) {
  // SplitMix64 of seed 0 begins with these outputs.
  EXPECT_EQ(Mix64(1 * kGoldenGamma), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(Mix64(2 * kGoldenGamma), 0x6e789e6aa1b965f4ULL);
  EXPECT_EQ(Mix64(3 * kGoldenGamma), 0x06c45d188009454fULL);
  EXPECT_EQ(Mix64(0), 0u);
}

TEST(HashTest, FastRange32KeepsOrderAndBounds) {
  EXPECT_EQ(FastRange32(0, 7), 0u);
  EXPECT_EQ(FastRange32(0xffffffff, 7), 6u);
  EXPECT_EQ(FastRange32(0xffffffff, 1), 0u);
  for (uint32_t word = 1000; word < 0xf0000000; word += 0x01234567) {
    EXPECT_LE(FastRange32(word - 1, 97), FastRange32(word, 97));
  }
}

}  // namespace
}  // namespace lodestar
