#include "tf_ops/core/lookup/bucket_array.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace lodestar {
namespace {

// A line of four numbers; 0 is free.
struct Line {
  static constexpr int kLanes = 4;
  static constexpr int kMaxPerBucket = 2;

  bool used(int lane) const { return numbers[lane] != 0; }
  bool full() const { return used(kLanes - 1); }
  void Move(int lane, const Line& from, int other) {
    numbers[lane] = from.numbers[other];
  }
  void Clear(int lane) { numbers[lane] = 0; }

  int64_t numbers[kLanes];
};

TEST(BucketArrayTest, RemovalMovesBackAnEntryThatSkippedAFullBucket) {
  BucketArray<Line> lines;
  ASSERT_TRUE(lines.Allocate(4, 4).ok());
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(lines.After(2), 0u);
  EXPECT_EQ(lines.CapacityFor(5), 6);
  EXPECT_EQ(lines.CapacityFor(9), 9);
  // A number n has the home n / 10. Line 2 is full, so 25 is in line 0.
  *lines.at(2) = {{21, 22, 23, 24}};
  *lines.at(0) = {{1, 25, 2, 0}};
  lines.Remove(2, 1, [](const Line& line, int lane) {
    return static_cast<uint64_t>(line.numbers[lane] / 10);
  });
  const int64_t wanted[3][4] = {{1, 2, 0, 0}, {}, {21, 24, 23, 25}};
  for (int b = 0; b < 3; ++b) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(lines.at(b)->numbers[i], wanted[b][i]) << b << ' ' << i;
    }
  }
}

}  // namespace
}  // namespace lodestar
