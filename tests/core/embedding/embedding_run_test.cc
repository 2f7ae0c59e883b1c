#include "tf_ops/core/embedding/embedding_run.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(EmbeddingRunTest, APartOfEveryTypeLeavesRoomOnASmallStack) {
  EXPECT_LE(kPart * sizeof(double), 16u << 10);
}

TEST(EmbeddingRunTest, CopyingAWideRowCostsMoreThanFindingIt) {
  EXPECT_GT(RowCost(1), kFindCost);
  EXPECT_GT(RowCost(64), RowCost(1));
}

}  // namespace
}  // namespace lodestar
