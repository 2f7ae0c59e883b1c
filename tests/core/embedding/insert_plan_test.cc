#include "tf_ops/core/embedding/insert_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace lodestar {
namespace {

constexpr int kDim = 2;

TablePolicies Cap(int64_t max_rows) {
  TablePolicies policies;
  policies.eviction.max_rows = max_rows;
  return policies;
}

struct Table {
  explicit Table(const TablePolicies& policies = TablePolicies())
      : parts(kDim, 2, RowInitializer(), policies, RowType::kFloat32) {}

  // Creates rows [id, id] for ids without one. Also starts the call.
  struct Call {
    Call(Table* table, std::vector<int64_t> of_ids,
         const InsertPlan::Options& options)
        : ids(std::move(of_ids)),
          refs(ids.size()),
          plan(
              ids, refs, options,
              [this, table](int64_t i, const RowRef& ref) {
                const float number = static_cast<float>(ids[i]);
                const float value[kDim] = {number, number};
                RowStore& rows = table->parts.rows.shard(ref.shard).rows;
                CopyRowIn(value, sizeof(value), rows.values(ref.row));
                table->parts.optimizer.FillSlots(&rows, ref.row);
              },
              &table->parts) {
      table->parts.rows.FindAll(ids, refs, nullptr);
      for (size_t i = 0; i < ids.size(); ++i) {
        if (!refs[i].found()) missing.push_back(i);
      }
    }
    Status Prepare() { return plan.Prepare(missing); }

    const std::vector<int64_t> ids;
    std::vector<RowRef> refs;
    std::vector<int64_t> missing;
    InsertPlan plan;
  };

  Status Insert(const std::vector<int64_t>& ids,
                const InsertPlan::Options& options = {}) {
    Call call(this, ids, options);
    LODESTAR_RETURN_IF_ERROR(call.Prepare());
    call.plan.Commit(nullptr);
    return Status();
  }
  // Ids in [0, 100) with a row.
  std::vector<int64_t> Resident() const {
    std::vector<int64_t> resident;
    for (int64_t id = 0; id < 100; ++id) {
      std::vector<RowRef> ref(1);
      parts.rows.FindEach(std::vector<int64_t>{id}, ref);
      if (ref[0].found()) resident.push_back(id);
    }
    return resident;
  }

  TableParts parts;
};

TEST(InsertPlanTest, NothingIsVisibleBeforeCommit) {
  Table table;
  table.parts.step.MoveTo(3);
  {
    Table::Call call(&table, {5, 6, 7}, {});
    ASSERT_TRUE(call.Prepare().ok());
    EXPECT_EQ(table.Resident(), std::vector<int64_t>());
    // Destroyed without Commit.
  }
  EXPECT_EQ(table.parts.rows.size(), 0);
  Table::Call call(&table, {5, 6, 7}, {});
  ASSERT_TRUE(call.Prepare().ok());
  call.plan.Commit(nullptr);
  EXPECT_EQ(table.Resident(), (std::vector<int64_t>{5, 6, 7}));
  EXPECT_EQ(table.parts.rows.size(), 3);
  EXPECT_EQ(table.parts.events.count(Event::kInserts), 3);
  for (size_t i = 0; i < call.ids.size(); ++i) {
    const RowRef& ref = call.refs[i];
    ASSERT_TRUE(ref.found());
    float value[kDim];
    RowStore& rows = table.parts.rows.shard(ref.shard).rows;
    ASSERT_TRUE(rows.Read(ref.row, call.ids[i], value));
    EXPECT_EQ(value[1], static_cast<float>(call.ids[i]));
    EXPECT_EQ(ref.meta->last_seen.load(), 3);
    EXPECT_EQ(ref.meta->frequency.load(), 0u);
  }
}

TEST(InsertPlanTest, ARowAddedInBetweenIsFound) {
  Table table;
  Table::Call late(&table, {5, 6}, {});
  ASSERT_TRUE(table.Insert({5}).ok());
  ASSERT_TRUE(late.Prepare().ok());
  EXPECT_TRUE(late.refs[0].found());
  late.plan.Commit(nullptr);
  EXPECT_EQ(table.parts.rows.size(), 2);
  EXPECT_EQ(table.parts.events.count(Event::kInserts), 2);
}

TEST(InsertPlanTest, TheOptimizerIsBoundAtomicallyWithTheRows) {
  AttachedOptimizer optimizer;
  optimizer.name = "replay:mine";
  optimizer.slot_names = {"velocity"};
  optimizer.slot_inits = {0.5f};
  Table table(Cap(1));
  InsertPlan::Options options;
  options.optimizer = &optimizer;
  options.refuse_excess = true;
  EXPECT_FALSE(table.Insert({1, 2}, options).ok());
  EXPECT_FALSE(table.parts.optimizer.bound());
  ASSERT_TRUE(table.Insert({1}, options).ok());
  EXPECT_TRUE(table.parts.optimizer.IsBoundTo(optimizer));
  // The same without rows.
  Table empty;
  ASSERT_TRUE(empty.Insert({}, options).ok());
  EXPECT_TRUE(empty.parts.optimizer.bound());
  optimizer.name = "replay:other";
  EXPECT_EQ(empty.Insert({}, options).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(empty.Insert({1}, options).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(empty.parts.rows.size(), 0);
}

// A step begins between the lookup and the plan of a call. If the call counted
// for the old step, it would drop the counts of the new step.
TEST(InsertPlanTest, ACallCountsForTheStepInWhichItTakesEffect) {
  for (const auto kind : {AdmissionPolicy::Kind::kMinCount,
                          AdmissionPolicy::Kind::kCountingBloom}) {
    TablePolicies policies;
    policies.admission.kind = kind;
    policies.admission.min_count = 3;
    policies.admission.num_counters = 1000;
    policies.admission.num_hashes = 3;
    Table table(policies);
    InsertPlan::Options options;
    options.call.count_frequency = options.call.admission = true;
    options.call.now = table.parts.step.value();
    {
      Table::Call late(&table, {5, 6}, options);
      table.parts.step.MoveTo(1);
      ASSERT_TRUE(table.Insert({5}, options).ok());
      ASSERT_TRUE(late.Prepare().ok());
      late.plan.Commit(nullptr);
    }
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.Insert({5}, options).ok());
    const ShardedRows::IdHash hash = table.parts.rows.HashOf(5);
    EXPECT_EQ(
        table.parts.occurrence_counter.CountsOf(hash.shard, hash.tag, 5, 1)
            .occurrences,
        1);
    EXPECT_EQ(table.parts.rows.size(), 0);
  }
}

}  // namespace
}  // namespace lodestar
