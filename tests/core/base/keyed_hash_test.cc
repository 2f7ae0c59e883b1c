#include "tf_ops/core/base/keyed_hash.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "tests/core/testing/chosen_ids.h"

namespace lodestar {
namespace {

TEST(KeyedHashTest, EachProcessHasAKey) {
  EXPECT_EQ(ProcessHashKey(), ProcessHashKey());
  EXPECT_EQ(ProcessHashKey() % 2, 1u);
  if (std::getenv("LODESTAR_PRINT_KEY") != nullptr) {
    std::printf("key %llx\n",
                static_cast<unsigned long long>(ProcessHashKey()));
    return;
  }
  char program[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", program, sizeof(program) - 1), 0);
  std::set<std::string> keys;
  for (int run = 0; run < 3; ++run) {
    const std::string command =
        std::string("LODESTAR_PRINT_KEY=1 ") + program +
        " --gtest_filter=KeyedHashTest.EachProcessHasAKey | grep key";
    FILE* const output = popen(command.c_str(), "r");
    ASSERT_NE(output, nullptr);
    char line[100] = {};
    ASSERT_NE(std::fgets(line, sizeof(line), output), nullptr);
    pclose(output);
    keys.insert(line);
  }
  EXPECT_EQ(keys.size(), 3u);
}

TEST(KeyedHashTest, ChosenIdsHaveDifferentHashes) {
  constexpr int64_t kIds = 20000;
  for (const std::vector<int64_t>& ids :
       {IdsWithEqualLowBits(kIds), IdsWithEqualHighBits(kIds)}) {
    std::set<uint32_t> low, high, products;
    for (const int64_t id : ids) {
      const uint64_t word = static_cast<uint64_t>(id);
      const uint64_t hash = KeyedHash(word, ProcessHashKey());
      low.insert(static_cast<uint32_t>(hash));
      high.insert(static_cast<uint32_t>(hash >> 32));
      products.insert(static_cast<uint32_t>(
          MultiplyHash(Mix64(word), ProcessHashKey()) >> 32));
    }
    EXPECT_GT(low.size(), kIds - 10u);
    EXPECT_GT(high.size(), kIds - 10u);
    EXPECT_GT(products.size(), kIds - 10u);
  }
}

TEST(KeyedHashTest, TheChosenIdsCollideWithoutAKey) {
  for (const int64_t id : IdsWithEqualLowBits(100)) {
    EXPECT_EQ(static_cast<uint32_t>(Mix64(id)), 0x1234567u);
  }
  for (const int64_t id : IdsWithEqualHighBits(100)) {
    EXPECT_EQ(Mix64(id) >> 32, 0x1234567u);
  }
}

}  // namespace
}  // namespace lodestar
