#include "tf_ops/core/embedding/table_parts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/rows/row_images.h"

namespace lodestar {
namespace {

class TableSnapshotTest : public ::testing::Test {
 protected:
  TableSnapshotTest() {
    policies_.shared_rows = 2;
    table_ = std::make_unique<TableParts>(3, 1, initializer_, policies_,
                                          RowType::kFloat32);
    EXPECT_TRUE(table_->shared.CreateRows().ok());
  }

  // Takes a snapshot and removes `removed_next` in the meantime. Returns the
  // ids removed since the base.
  std::vector<int64_t> Snapshot(int64_t removed_next, std::string* base) {
    const auto source = MakeSnapshotSource(table_.get());
    EXPECT_TRUE(source->Reserve().ok());
    const auto budget = std::make_shared<ImageBudget>(StepGates(), 0);
    source->Lock();
    EXPECT_TRUE(source->Describe("", &state_).ok());
    source->Begin(budget, 1000, 1000);
    source->Unlock();
    EXPECT_EQ(source->budget(), budget);
    const std::vector<int64_t> removed = source->removed()[0];
    {
      MutexLock lock(&table_->rows.shard(0).mutex);
      EXPECT_TRUE(table_->rows.shard(0).removed.Add(removed_next, 0));
    }
    source->EndImages();
    source->End(base);
    EXPECT_EQ(source->budget(), nullptr);
    return removed;
  }

  RowInitializer initializer_;
  TablePolicies policies_;
  std::unique_ptr<TableParts> table_;
  SnapshotState state_;
};

// Removed ids belong to the snapshot, and to the next one if it fails.
TEST_F(TableSnapshotTest, AFailedSnapshotReturnsTheRemovedIds) {
  std::string base = "first";
  EXPECT_EQ(Snapshot(1, &base), std::vector<int64_t>{});
  EXPECT_EQ(table_->rows.changes().base(), "first");
  EXPECT_EQ(Snapshot(2, nullptr), std::vector<int64_t>{1});
  EXPECT_EQ(table_->rows.changes().base(), "first");
  base = "second";
  EXPECT_EQ(Snapshot(3, &base), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(Snapshot(4, nullptr), std::vector<int64_t>{3});
  base = "";
  EXPECT_TRUE(table_->rows.shard(0).rows.marking());
  Snapshot(5, &base);
  EXPECT_FALSE(table_->rows.shard(0).rows.marking());
}

TEST_F(TableSnapshotTest, PartsAreShardsAndThenSharedRows) {
  const auto source = MakeSnapshotSource(table_.get());
  ASSERT_TRUE(source->Reserve().ok());
  source->Lock();
  EXPECT_TRUE(source->Describe("", &state_).ok());
  source->Begin(std::make_shared<ImageBudget>(StepGates(), 0), 1000, 1000);
  source->Unlock();
  EXPECT_EQ(state_.table.shared_rows, 2);
  EXPECT_TRUE(state_.table.whole);
  EXPECT_GT(state_.bytes, 0);
  ASSERT_EQ(source->num_parts(), 2);
  EXPECT_FALSE(source->has_shared_rows(0));
  EXPECT_TRUE(source->has_shared_rows(1));
  EXPECT_EQ(source->num_rows(0), 0);
  std::vector<char> records(2 * state_.table.record_bytes());
  int64_t next = 0;
  int64_t count = 0;
  ASSERT_TRUE(source->SaveRows(1, 2, &next, records.data(), &count).ok());
  EXPECT_EQ(count, 2);
  EXPECT_EQ(next, source->num_rows(1));
  source->EndImages();
  source->End(nullptr);
}

}  // namespace
}  // namespace lodestar
