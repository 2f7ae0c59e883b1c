#include "tf_ops/core/embedding/table_parts.h"

#include <gtest/gtest.h>

#include <vector>

namespace lodestar {
namespace {

TEST(TablePartsTest, ANewRowHasItsInitialValueAndFreshSlots) {
  RowInitializer initializer;
  ASSERT_TRUE(
      RowInitializer::Create("uniform", -1, 1, 3, 4, &initializer).ok());
  TableParts table(3, 1, initializer, TablePolicies(), RowType::kFloat32);
  AttachedOptimizer optimizer;
  optimizer.name = "adagrad";
  optimizer.slot_names = {"accumulator"};
  optimizer.slot_inits = {0.5f};
  ASSERT_TRUE(table.optimizer.Reserve(optimizer).ok());
  table.optimizer.Bind(optimizer);
  RowStore& store = table.rows.shard(0).rows;
  ASSERT_TRUE(store.Reserve(1).ok());
  const RowRef ref = table.rows.RefTo(0, store.Allocate());
  table.FillNewRow(42, ref);
  store.Publish(ref.row, 42, 0, 0);
  std::vector<float> wanted(3);
  table.rows.Draw(initializer, 42, wanted.data());
  std::vector<float> found(3);
  ASSERT_TRUE(store.Read(ref.row, 42, found.data()));
  EXPECT_EQ(found, wanted);
  const float* const slot = static_cast<const float*>(store.slot(ref.row, 0));
  EXPECT_EQ(std::vector<float>(slot, slot + 3), std::vector<float>(3, 0.5f));
}

}  // namespace
}  // namespace lodestar
