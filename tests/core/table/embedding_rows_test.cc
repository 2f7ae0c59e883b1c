#include "tf_ops/core/table/embedding_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace lodestar {
namespace {

TEST(EmbeddingRowsTest, AWrongSizeIsReported) {
  EXPECT_TRUE(CheckSize("rows", 6, 6).ok());
  const Status status = CheckSize("rows", 5, 6);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "`rows` must have 6 elements, got 5.");
}

TEST(EmbeddingRowsTest, ARepeatedIdIsReported) {
  EXPECT_TRUE(CheckUnique("ids", {}).ok());
  EXPECT_TRUE(CheckUnique("ids", std::vector<int64_t>{3, 1, 2}).ok());
  const Status status = CheckUnique("ids", std::vector<int64_t>{3, 1, 2, 1, 3});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "`ids` contains 1 twice, at 1 and 3.");
}

}  // namespace
}  // namespace lodestar
