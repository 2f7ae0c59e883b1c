#include "tf_ops/core/embedding/table_parts.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
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

// Removed ids belong to the snapshot, and to the next one if it fails.
TEST(SnapshotSourceTest, AFailedSnapshotReturnsTheRemovedIds) {
  RowInitializer initializer;
  TablePolicies policies;
  policies.shared_rows = 2;
  TableParts table(3, 1, initializer, policies, RowType::kFloat32);
  ASSERT_TRUE(table.shared.CreateRows().ok());
  SnapshotSource source(&table);
  const std::vector<RowStore*> stores = source.stores();
  ASSERT_EQ(stores.size(), 2);
  EXPECT_EQ(stores[0], &table.rows.shard(0).rows);
  EXPECT_EQ(stores[1], table.rows.shared());
  const std::vector<float> inits;
  const auto budget = std::make_shared<ImageBudget>(StepGates(), 0);
  ShardLocks locks = source.Locks();
  // Takes a snapshot and removes `removed_next` in the meantime.
  const auto snapshot = [&](int64_t removed_next, std::string* base) {
    std::vector<std::vector<int64_t>> removed(1);
    std::vector<int64_t> ends;
    locks.Lock();
    EXPECT_TRUE(source.ReserveMarks().ok());
    source.Begin(budget, &removed);
    for (RowStore* store : stores) {
      store->BeginSnapshot(true, {{3, RowType::kFloat32, 0}, inits, 0}, 1000,
                           budget.get());
      ends.push_back(store->high_water());
    }
    locks.Unlock();
    EXPECT_EQ(source.budget(), budget);
    {
      MutexLock lock(&table.rows.shard(0).mutex);
      EXPECT_TRUE(table.rows.shard(0).removed.Add(removed_next, 0));
    }
    for (size_t p = 0; p < stores.size(); ++p) stores[p]->EndImages(ends[p]);
    source.End(ends, removed, base);
    EXPECT_EQ(source.budget(), nullptr);
    return removed[0];
  };
  std::string base = "first";
  EXPECT_EQ(snapshot(1, &base), std::vector<int64_t>{});
  EXPECT_EQ(table.rows.changes().base(), "first");
  EXPECT_EQ(snapshot(2, nullptr), std::vector<int64_t>{1});
  EXPECT_EQ(table.rows.changes().base(), "first");
  base = "second";
  EXPECT_EQ(snapshot(3, &base), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(snapshot(4, nullptr), std::vector<int64_t>{3});
  base = "";
  EXPECT_TRUE(table.rows.shard(0).rows.marking());
  snapshot(5, &base);
  EXPECT_FALSE(table.rows.shard(0).rows.marking());
}

}  // namespace
}  // namespace lodestar
