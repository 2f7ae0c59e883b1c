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

TEST(EmbeddingRowsTest, RowWiseSlotsHaveOneValuePerRow) {
  EmbeddingRows rows;
  rows.ids = {1, 2};
  rows.frequencies = rows.last_seen = {0, 0};
  rows.values.Resize(RowType::kFloat16, 2 * 3);
  rows.optimizer = {"row_wise_adagrad", {"accumulator"}, {0.1f}};
  rows.slots.Resize(RowType::kFloat32, 2);
  rows.shared_values.Resize(RowType::kFloat16, 4 * 3);
  rows.shared_slots.Resize(RowType::kFloat32, 4);
  EXPECT_TRUE(CheckRowsView(View(rows), 3, RowType::kFloat16).ok());
  EXPECT_TRUE(CheckSharedRows(View(rows), 4, 3, RowType::kFloat16).ok());
  rows.slots.Resize(RowType::kFloat32, 2 * 3);
  EXPECT_EQ(CheckRowsView(View(rows), 3, RowType::kFloat16).message(),
            "`slots` must have 2 elements, got 6.");
  rows.shared_slots.Resize(RowType::kFloat32, 4 * 3);
  EXPECT_EQ(CheckSharedRows(View(rows), 4, 3, RowType::kFloat16).message(),
            "`shared_slots` must have 4 elements, got 12.");
}

}  // namespace
}  // namespace lodestar
