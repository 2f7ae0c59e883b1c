#include "tf_ops/core/base/permutation.h"

#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

std::vector<int64_t> All(int64_t n, uint64_t seed) {
  const Permutation permutation(n, seed);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(permutation(i));
  return all;
}

TEST(PermutationTest, IsABijection) {
  for (const int64_t n : {0, 1, 2, 3, 255, 256, 257, 1000, 4097, 100'000}) {
    const std::vector<int64_t> all = All(n, 7);
    const std::set<int64_t> set(all.begin(), all.end());
    ASSERT_EQ(static_cast<int64_t>(set.size()), n);
    if (n > 0) {
      EXPECT_EQ(*set.begin(), 0);
      EXPECT_EQ(*set.rbegin(), n - 1);
    }
  }
}

TEST(PermutationTest, DependsOnTheSeedOnly) {
  EXPECT_EQ(All(1000, 1), All(1000, 1));
  EXPECT_NE(All(1000, 1), All(1000, 2));
}

TEST(PermutationTest, OrdersAreEquallyLikely) {
  std::vector<int64_t> counts(6);
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const std::vector<int64_t> all = All(3, seed);
    ++counts[2 * all[0] + (all[1] < all[2])];
  }
  for (const int64_t count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(PermutationTest, PlacesAreEquallyLikely) {
  constexpr int64_t kPlaces = 10;
  std::vector<int64_t> counts(kPlaces * kPlaces);
  for (uint64_t seed = 0; seed < 10'000; ++seed) {
    const std::vector<int64_t> all = All(kPlaces, seed);
    for (int64_t i = 0; i < kPlaces; ++i) ++counts[i * kPlaces + all[i]];
  }
  for (const int64_t count : counts) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace lodestar
