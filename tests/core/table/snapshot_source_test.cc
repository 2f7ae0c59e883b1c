#include "tf_ops/core/table/snapshot_source.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(SnapshotSourceTest, ARecordHasTheSlotsOfTheOptimizer) {
  SnapshotTable table;
  table.dim = 3;
  table.type = RowType::kFloat16;
  // Each part is padded to 8 bytes; slots of 16-bit rows are 32-bit.
  EXPECT_EQ(table.record_bytes(), 24 + 8);
  table.optimizer.slot_names = {"momentum", "velocity"};
  EXPECT_EQ(table.layout().slots(), 2);
  EXPECT_EQ(table.record_bytes(), 24 + 8 + 2 * 16);
}

}  // namespace
}  // namespace lodestar
