#include "tf_ops/core/memory/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace lodestar {
namespace {

bool AllZero(const char* bytes, int64_t count) {
  return std::all_of(bytes, bytes + count, [](char c) { return c == 0; });
}

TEST(ArenaTest, BlocksAreZeroAlignedAndDisjoint) {
  Arena arena;
  std::vector<std::pair<char*, int64_t>> blocks;
  for (const int64_t bytes : {1, 64, 100, 4095, 4096, 10000, 3 << 20, 8}) {
    char* const block = static_cast<char*>(arena.Allocate(bytes));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<intptr_t>(block) % (bytes < 4096 ? 64 : 4096),
              0);
    EXPECT_TRUE(AllZero(block, bytes)) << bytes;
    std::memset(block, 1, bytes);
    blocks.push_back({block, bytes});
  }
  std::sort(blocks.begin(), blocks.end());
  for (size_t i = 1; i < blocks.size(); ++i) {
    EXPECT_LE(blocks[i - 1].first + blocks[i - 1].second, blocks[i].first);
  }
}

TEST(ArenaTest, ReleasedPagesReadZero) {
  Arena arena;
  constexpr int64_t kBytes = 1 << 20;
  char* const block = static_cast<char*>(arena.Allocate(kBytes));
  ASSERT_NE(block, nullptr);
  std::memset(block, 1, kBytes);
  ASSERT_TRUE(Arena::Release(block, kBytes));
  EXPECT_TRUE(AllZero(block, kBytes));
  // Contains no whole page.
  block[0] = 1;
  EXPECT_TRUE(Arena::Release(block, 4095));
  EXPECT_EQ(block[0], 1);
}

TEST(ArenaTest, ThreadsGetDisjointBlocks) {
  Arena arena;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&arena, t] {
      std::vector<char*> blocks;
      for (int i = 0; i < 200; ++i) {
        blocks.push_back(static_cast<char*>(arena.Allocate(1000)));
        std::memset(blocks.back(), t + 1, 1000);
      }
      for (char* const block : blocks) {
        EXPECT_EQ(std::count(block, block + 1000, t + 1), 1000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lodestar
