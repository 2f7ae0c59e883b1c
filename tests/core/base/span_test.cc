#include "tf_ops/core/base/span.h"

#include <gtest/gtest.h>

#include <vector>

namespace lodestar {
namespace {

TEST(SpanTest, IsEmptyByDefault) {
  const Span<int> none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.begin(), none.end());
}

TEST(SpanTest, ViewsAVector) {
  std::vector<int> numbers = {1, 2, 3, 4};
  const Span<int> all = numbers;
  all[1] = 7;
  EXPECT_EQ(numbers[1], 7);
  const Span<const int> read = all;
  EXPECT_EQ(read.data(), numbers.data());
  EXPECT_EQ(read.size(), 4);
  const std::vector<int>& same = numbers;
  EXPECT_EQ(Span<const int>(same).data(), numbers.data());
}

TEST(SpanTest, SubspanViewsTheSameElements) {
  std::vector<int> numbers = {1, 2, 3, 4};
  const Span<const int> part = Span<const int>(numbers).subspan(1, 2);
  EXPECT_EQ(std::vector<int>(part.begin(), part.end()),
            (std::vector<int>{2, 3}));
  EXPECT_TRUE(part.subspan(2, 0).empty());
}

static_assert(!std::is_convertible_v<Span<const int>, Span<int>>);
static_assert(!std::is_convertible_v<const std::vector<int>&, Span<int>>);

}  // namespace
}  // namespace lodestar
