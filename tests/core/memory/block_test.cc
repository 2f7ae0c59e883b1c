#include "tf_ops/core/memory/block.h"

#include <gtest/gtest.h>

#include <cstring>

namespace lodestar {
namespace {

TEST(BlockTest, HoldsWhatWasAskedForAndWholePagesOfMore) {
  for (const size_t bytes :
       {size_t{1}, size_t{8191}, size_t{8192}, size_t{8193}, size_t{1} << 20}) {
    const Block block = AllocateBlock(bytes);
    ASSERT_NE(block.address, nullptr);
    EXPECT_EQ(block.bytes, bytes < 8192 ? bytes : (bytes + 4095) / 4096 * 4096);
    std::memset(block.address, 1, block.bytes);
    FreeBlock(block);
  }
}

TEST(BlockTest, NothingIsFreedToo) { FreeBlock(Block()); }

TEST(BlockTest, WithoutMemoryItHasNoAddress) {
  // More than any address space holds, but for what rounding adds.
  const Block block = AllocateBlock(size_t{1} << 62);
  EXPECT_EQ(block.address, nullptr);
  EXPECT_EQ(block.bytes, 0u);
}

}  // namespace
}  // namespace lodestar
