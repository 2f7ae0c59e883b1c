#include "tf_ops/core/embedding/rows_applier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/testing/errors.h"

namespace lodestar {
namespace {

constexpr int kDim = 2;

std::unique_ptr<TableParts> MakeTable(
    const TablePolicies& policies = TablePolicies(), int shards = 4) {
  RowInitializer initializer;
  EXPECT_TRUE(
      RowInitializer::Create("uniform", -1, 1, 3, 4, &initializer).ok());
  auto table = std::make_unique<TableParts>(kDim, shards, initializer, policies,
                                            RowType::kFloat32);
  EXPECT_TRUE(table->shared.CreateRows().ok());
  return table;
}

AttachedOptimizer Adagrad() { return {"adagrad", {"accumulator"}, {0.5f}}; }

// Records with one optimizer slot. All numbers of a row are its id; the slots
// are 10 times as large.
class Records {
 public:
  explicit Records(const std::vector<int64_t>& ids, int64_t last_seen = 7) {
    data_.resize(ids.size() * layout_.bytes());
    for (size_t i = 0; i < ids.size(); ++i) {
      char* const record = data_.data() + i * layout_.bytes();
      const SnapshotRowHead head = {ids[i], last_seen, 3, 0};
      std::memcpy(record, &head, sizeof(head));
      const std::vector<float> values(kDim, static_cast<float>(ids[i]));
      const std::vector<float> slots(kDim, static_cast<float>(10 * ids[i]));
      std::memcpy(record + layout_.values(), values.data(),
                  layout_.value_bytes());
      std::memcpy(record + layout_.slot(0), slots.data(), layout_.slot_bytes());
    }
  }

  RowRecords View(bool reset_slots = false) const {
    return {data_.data(), static_cast<int64_t>(data_.size()) / layout_.bytes(),
            layout_, reset_slots};
  }

 private:
  const SnapshotRowLayout layout_{kDim, RowType::kFloat32, {1}};
  std::vector<char> data_;
};

// Puts the record of one id; returns whether its row is new.
bool PutOne(const RowRecords& from, RowsApplier* applier) {
  const int64_t id = HeadOf(from.data).id;
  const ShardedRows::IdHash hash = applier->HashOf(id);
  RowShard& shard = applier->shard(hash.shard);
  MutexLock lock(&shard.mutex);
  const uint32_t row = shard.Find(hash.tag, id);
  const std::vector<uint32_t> tags = {hash.tag};
  EXPECT_TRUE(applier->Reserve(&shard, tags).ok());
  const uint32_t put = applier->Put(from, from.data, &shard, hash.tag, row);
  EXPECT_EQ(put, shard.Find(hash.tag, id));
  return row == LeafIndex::kNoRow;
}

struct Row {
  float value = 0;
  float slot = 0;
  int64_t last_seen = 0;
  uint32_t frequency = 0;
};
Row Read(TableParts* table, int64_t id) {
  const ShardedRows::IdHash hash = table->rows.HashOf(id);
  RowStore& rows = table->rows.shard(hash.shard).rows;
  const uint32_t row = table->rows.shard(hash.shard).Find(hash.tag, id);
  EXPECT_NE(row, LeafIndex::kNoRow);
  return {static_cast<const float*>(rows.values(row))[kDim - 1],
          static_cast<const float*>(rows.slot(row, 0))[kDim - 1],
          rows.meta(row)->last_seen, rows.meta(row)->frequency};
}

TEST(RowsApplierTest, RecordsAreGroupedByShard) {
  const auto table = MakeTable();
  const RowsApplier applier(table.get());
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < 20; ++id) ids.push_back(id);
  const Records records(ids);
  RecordGroups groups;
  applier.Group(records.View(), [](int64_t id) { return id != 3; }, &groups);
  std::vector<int64_t> grouped;
  for (size_t s = 0; s < applier.num_shards(); ++s) {
    for (uint32_t k = groups.begins[s]; k < groups.begins[s + 1]; ++k) {
      grouped.push_back(HeadOf(groups.items[k].record).id);
      EXPECT_EQ(applier.HashOf(grouped.back()).shard, s);
      EXPECT_EQ(applier.HashOf(grouped.back()).tag, groups.items[k].tag);
    }
  }
  std::sort(grouped.begin(), grouped.end());
  ids.erase(ids.begin() + 3);
  EXPECT_EQ(grouped, ids);
}

TEST(RowsApplierTest, RowsAreAddedOverwrittenAndRemovedInOrder) {
  for (const bool fresh : {false, true}) {
    TablePolicies policies;
    policies.eviction.max_rows = 10;
    const auto table = MakeTable(policies, 1);
    RowsApplier applier(table.get(), fresh);
    ASSERT_TRUE(applier.AttachOptimizer(Adagrad()).ok());
    EXPECT_TRUE(PutOne(Records({1}, 5).View(), &applier));
    EXPECT_TRUE(PutOne(Records({2}, 6).View(/*reset_slots=*/true), &applier));
    EXPECT_TRUE(PutOne(Records({3}, 6).View(), &applier));
    EXPECT_FALSE(PutOne(Records({1}, 8).View(), &applier));
    applier.CountAdded(3);
    RowShard& shard = applier.shard(0);
    {
      const uint32_t tag = applier.HashOf(3).tag;
      MutexLock lock(&shard.mutex);
      applier.Remove(&shard, tag, shard.Find(tag, 3));
      EXPECT_EQ(shard.Find(tag, 3), LeafIndex::kNoRow);
    }
    applier.CountRemoved(1);
    EXPECT_EQ(table->rows.size(), 2);
    EXPECT_EQ(table->events.count(Event::kInserts), 3);
    EXPECT_EQ(table->events.count(Event::kRemoved), 1);
    const Row one = Read(table.get(), 1);
    EXPECT_EQ(one.value, 1);
    EXPECT_EQ(one.slot, 10);
    EXPECT_EQ(one.last_seen, 8);
    EXPECT_EQ(one.frequency, 3);
    EXPECT_EQ(Read(table.get(), 2).slot, 0.5f);
    if (fresh) {
      ASSERT_TRUE(applier.RebuildOrder(nullptr).ok());
    }
    MutexLock lock(&shard.mutex);
    const EvictionList* const order = shard.order->by_age();
    const uint32_t oldest = order->oldest();
    EXPECT_EQ(shard.rows.meta(oldest)->id, 2);
    const uint32_t next = order->after(oldest);
    EXPECT_EQ(shard.rows.meta(next)->id, 1);
    EXPECT_EQ(order->after(next), EvictionList::kNone);
  }
}

TEST(RowsApplierTest, SharedRowsAreOverwritten) {
  TablePolicies policies;
  policies.shared_rows = 2;
  const auto table = MakeTable(policies);
  RowsApplier applier(table.get());
  ASSERT_TRUE(applier.AttachOptimizer(Adagrad()).ok());
  applier.PutShared(Records({1, 0}).View());
  for (uint32_t row = 0; row < 2; ++row) {
    const RowStore& rows = *table->shared.rows();
    EXPECT_EQ(*static_cast<const float*>(rows.values(row)), row);
    EXPECT_EQ(*static_cast<const float*>(rows.slot(row, 0)), 10 * row);
  }
  // A table without shared rows ignores them.
  RowsApplier(MakeTable().get()).PutShared(Records({1, 0}).View());
}

TEST(RowChecksTest, RowsOfAnotherKindAreRefused) {
  TablePolicies policies;
  policies.shared_rows = 3;
  const auto table = MakeTable(policies);
  const RowChecks checks(*table);
  EXPECT_TRUE(checks.CheckKind(kDim, RowType::kFloat32, 3).ok());
  EXPECT_TRUE(checks.CheckKind(kDim, RowType::kFloat32, {}).ok());
  EXPECT_TRUE(
      RowChecks(*MakeTable()).CheckKind(kDim, RowType::kFloat32, 3).ok());
  ExpectError(checks.CheckKind(5, RowType::kFloat32, 3),
              StatusCode::kInvalidArgument, {"the table's dimension is 2"});
  ExpectError(checks.CheckKind(kDim, RowType::kFloat16, 3),
              StatusCode::kInvalidArgument, {"the table's rows are float32"});
  ExpectError(checks.CheckKind(kDim, RowType::kFloat32, 4),
              StatusCode::kInvalidArgument, {"but the table has 3"});
}

TEST(RowChecksTest, AnotherOptimizerIsRefused) {
  const auto table = MakeTable();
  RowsApplier applier(table.get());
  const AttachedOptimizer adam = {"adam", {"momentum", "velocity"}, {0, 0}};
  EXPECT_TRUE(applier.CheckOptimizer({}).ok());
  EXPECT_TRUE(applier.CheckOptimizer(adam).ok());
  ExpectError(applier.CheckOptimizer({"future", {}, {}}),
              StatusCode::kInvalidArgument, {"unknown optimizer"});
  ASSERT_TRUE(applier.AttachOptimizer(Adagrad()).ok());
  EXPECT_TRUE(applier.CheckOptimizer({}).ok());
  EXPECT_TRUE(applier.CheckOptimizer(Adagrad()).ok());
  ExpectError(applier.CheckOptimizer(adam), StatusCode::kFailedPrecondition,
              {"has the optimizer slots of 'adagrad'"});
}

TEST(RowChecksTest, TheCapIsChecked) {
  TablePolicies policies;
  policies.eviction.max_rows = 3;
  const auto capped = MakeTable(policies);
  EXPECT_TRUE(RowChecks(*capped).CheckCap(3).ok());
  ExpectError(RowChecks(*capped).CheckCap(4), StatusCode::kFailedPrecondition,
              {"makes 4 rows"});
  EXPECT_TRUE(RowChecks(*MakeTable()).CheckCap(1000).ok());
}

TEST(RowChecksTest, APendingIdHasNoRow) {
  TablePolicies policies;
  policies.admission.kind = AdmissionPolicy::Kind::kMinCount;
  policies.admission.min_count = 2;
  const auto table = MakeTable(policies);
  RowsApplier applier(table.get());
  ASSERT_TRUE(applier.AttachOptimizer(Adagrad()).ok());
  PutOne(Records({5}).View(), &applier);
  const std::vector<int64_t> ids = {4, 5, 6}, ones = {1, 1, 1}, five = {5},
                             six = {6};
  EmbeddingRowsView rows;
  rows.pending_ids = ids;
  rows.pending_sightings = ones;
  rows.pending_last_seen = ones;
  ExpectError(applier.CheckPending(rows), StatusCode::kDataLoss,
              {"id 5 is pending, but it has a row"});
  EXPECT_TRUE(applier.CheckPending(rows, {}, five).ok());
  ExpectError(applier.CheckPending(rows, six, five), StatusCode::kDataLoss,
              {"id 6 is pending, but it has a row"});
}

}  // namespace
}  // namespace lodestar
