#include "tf_ops/core/sequence/sequence_scatter.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace lodestar {
namespace {

TEST(SequenceScatterTest, SequencesMapToRows) {
  std::vector<int64_t> places(4);
  ASSERT_TRUE(SequenceScatterPlaces(std::vector<int64_t>{2, 0, 4, 4},
                                    std::vector<int64_t>{0, 2, 2, 4}, 5, places)
                  .ok());
  EXPECT_EQ(places, (std::vector<int64_t>{2, 0, 14, 14}));
}

TEST(SequenceScatterTest, RejectsAnIndexOutOfRange) {
  for (const int64_t bad : {-1, 5}) {
    std::vector<int64_t> places(2);
    EXPECT_EQ(
        SequenceScatterPlaces(std::vector<int64_t>{1, bad},
                              std::vector<int64_t>{0, 1, 2}, 5, places)
            .message(),
        StrCat("`index[1]` must be in [0, 5), got ", bad, " in sequence 1."));
  }
}

}  // namespace
}  // namespace lodestar
