#include "tf_ops/core/sequence/sequence_reshape.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace lodestar {
namespace {

TEST(SequenceReshapeTest, ConvertsSplits) {
  const std::vector<int64_t> splits = {0, 2, 2, 6};
  std::vector<int64_t> reshaped(4);
  ASSERT_TRUE(SequenceReshapeSplits(splits, 3, 6, reshaped).ok());
  EXPECT_EQ(reshaped, (std::vector<int64_t>{0, 1, 1, 3}));
  ASSERT_TRUE(SequenceReshapeSplits(splits, 3, 1, reshaped).ok());
  EXPECT_EQ(reshaped, (std::vector<int64_t>{0, 6, 6, 18}));
}

TEST(SequenceReshapeTest, RejectsPartialRows) {
  std::vector<int64_t> reshaped(3);
  EXPECT_EQ(
      SequenceReshapeSplits(std::vector<int64_t>{0, 2, 5}, 3, 2, reshaped)
          .message(),
      "sequence 1 has 3 rows of 3 = 9 values, not a multiple of `new_dim`=2.");
}

}  // namespace
}  // namespace lodestar
