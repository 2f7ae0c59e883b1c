#include "tf_ops/core/snapshot/host_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/core/snapshot/snapshot_tables.h"

namespace lodestar {
namespace {

TEST(HostTableTest, HasTheOptionsAndTheStateButNoRows) {
  TablePolicies policies;
  policies.eviction.max_rows = 9;
  policies.shared_rows = 2;
  const auto table = MustRestore({WholeFile({1, 2})}, *MakeStore(policies));
  ASSERT_NE(table, nullptr);
  std::unique_ptr<EmbeddingStore> host;
  ASSERT_TRUE(MakeHostTable(*table, {}, &host).ok());
  const EmbeddingRows wanted = Export(*table);
  const EmbeddingRows rows = Export(*host);
  EXPECT_TRUE(rows.ids.empty());
  EXPECT_EQ(rows.optimizer.name, "adagrad");
  EXPECT_EQ(rows.step, wanted.step);
  EXPECT_EQ(rows.seed, wanted.seed);
  EXPECT_EQ(rows.salt, wanted.salt);
  EXPECT_TRUE(rows.shared_values == wanted.shared_values);
  EXPECT_TRUE(rows.shared_slots == wanted.shared_slots);
  EXPECT_EQ(host->eviction().max_rows, 9);
  EXPECT_EQ(host->dim(), kDim);
}

TEST(HostTableTest, ATableOnAGpuIsRestoredByWayOfIt) {
  // tests/cuda/device_snapshot_test.cc compares such tables with others. Here a
  // table in host memory takes the same path.
  const auto like = MakeStore();
  std::unique_ptr<EmbeddingStore> host;
  ASSERT_TRUE(MakeHostTable(*like, {}, &host).ok());
  const auto restored = MustRestore({WholeFile({3, 4, 5})}, *host);
  ASSERT_NE(restored, nullptr);
  const EmbeddingRows rows = Export(*restored);
  std::unique_ptr<class Table> table;
  ASSERT_TRUE(like->CreateReplacement(View(rows), {}, &table).ok());
  EmbeddingRows replaced;
  ASSERT_TRUE(table->Export(/*with_slots=*/true, &replaced, {}).ok());
  ExpectEqual(replaced, rows);
}

}  // namespace
}  // namespace lodestar
