#include "tf_ops/core/embedding/occurrence_counter.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/core/embedding/resident_bytes.h"

namespace lodestar {
namespace {

using Admit = LookupOptions::Admit;

AdmissionPolicy ByCount(int64_t min_count) {
  AdmissionPolicy policy;
  policy.kind = AdmissionPolicy::Kind::kMinCount;
  policy.min_count = min_count;
  return policy;
}

AdmissionPolicy BySketch(int64_t min_count) {
  AdmissionPolicy policy = ByCount(min_count);
  policy.kind = AdmissionPolicy::Kind::kCountingBloom;
  policy.num_counters = 1000;
  policy.num_hashes = 3;
  return policy;
}

// A table of one shard with admission.
struct Table {
  explicit Table(const AdmissionPolicy& policy)
      : rows(1, RowType::kFloat32, 1, TablePolicies()),
        counter(WithAdmission(policy), &rows, &step) {}

  static TablePolicies WithAdmission(const AdmissionPolicy& policy) {
    TablePolicies policies;
    policies.admission = policy;
    return policies;
  }

  // Looks up `ids` and returns the admitted ones.
  std::vector<int64_t> Lookup(const std::vector<int64_t>& ids, int64_t now,
                              std::vector<uint32_t> occurrences = {},
                              Admit admit = Admit::kByPolicy) {
    const ShardLocks locks(rows);
    const std::unique_lock<Mutex> sketch = counter.LockSketch();
    EXPECT_TRUE(counter.ReserveSketch().ok());
    ShardPlan plan;
    for (size_t i = 0; i < ids.size(); ++i) {
      plan.rows.push_back({static_cast<int64_t>(i), -1, 0});
      plan.tags.push_back(rows.HashOf(ids[i]).tag);
    }
    OccurrenceCounter::Call call;
    call.now = now;
    call.count_frequency = call.admission = true;
    call.admit = admit;
    call.occurrences = occurrences;
    counter.Plan(ids, call, 0, &plan);
    EXPECT_TRUE(counter.Reserve(0, plan, /*may_refuse=*/false).ok());
    counter.Commit(ids, now, 0, plan);
    std::vector<int64_t> admitted;
    frequencies.clear();
    for (const PlannedRow& row : plan.rows) {
      admitted.push_back(ids[row.index]);
      frequencies.push_back(row.frequency);
    }
    return admitted;
  }
  OccurrenceCounter::Counts CountsOf(int64_t id, int64_t step) const {
    const ShardLocks locks(rows);
    return counter.CountsOf(0, rows.HashOf(id).tag, id, step);
  }
  std::vector<int64_t> Pending(int64_t step) const {
    EmbeddingRows out;
    out.step = step;
    const ShardLocks locks(rows);
    counter.Export(&out);
    return out.pending_ids;
  }

  ShardedRows rows;
  TableStep step;
  OccurrenceCounter counter;
  std::vector<uint32_t> frequencies;  // of the admitted ids
};

const std::vector<int64_t> kNone;

TEST(OccurrenceCounterTest, AnIdIsAdmittedByItsNthStep) {
  for (const AdmissionPolicy& policy : {ByCount(3), BySketch(3)}) {
    Table table(policy);
    for (int64_t now = 0; now < 2; ++now) {
      for (int i = 0; i < 3; ++i) EXPECT_EQ(table.Lookup({7, 8}, now), kNone);
      EXPECT_EQ(table.CountsOf(7, now).occurrences, now + 1);
      EXPECT_EQ(table.CountsOf(7, now).last_seen, now);
      EXPECT_EQ(table.Pending(now), (std::vector<int64_t>{7, 8}));
    }
    EXPECT_EQ(table.Lookup({8}, 2), (std::vector<int64_t>{8}));
    EXPECT_EQ(table.frequencies, (std::vector<uint32_t>{3}));
    EXPECT_EQ(table.CountsOf(9, 2).occurrences, 0);
  }
  Table exact(ByCount(3));
  exact.Lookup({7, 8}, 0);
  exact.Lookup({7}, 1);
  exact.Lookup({7}, 2);
  EXPECT_EQ(exact.Pending(2), (std::vector<int64_t>{8}));  // 7 has its row
  // For ids of an earlier step, a sketch only has the counts.
  Table sketch(BySketch(3));
  sketch.Lookup({7}, 0);
  EXPECT_EQ(sketch.counter.num_pending(0, 0), 1);
  EXPECT_EQ(sketch.counter.num_pending(0, 1), 0);
  EXPECT_EQ(sketch.CountsOf(7, 1).last_seen,
            -1);  // before another id is counted
  sketch.Lookup({8}, 1);
  EXPECT_EQ(sketch.Pending(1), (std::vector<int64_t>{8}));
  EXPECT_EQ(sketch.counter.num_pending(0, 1), 1);
  EXPECT_EQ(sketch.CountsOf(7, 1).occurrences, 1);
  EXPECT_EQ(sketch.CountsOf(7, 1).last_seen, -1);
  EXPECT_EQ(exact.counter.num_pending(0, 9), 1);
}

TEST(OccurrenceCounterTest, OldPendingIdsAreDropped) {
  EXPECT_FALSE(IsOlder(3, 5, 2));
  EXPECT_TRUE(IsOlder(2, 5, 2));
  EXPECT_TRUE(IsOlder(std::numeric_limits<int64_t>::min(),
                      std::numeric_limits<int64_t>::max(), 5));
  Table table(ByCount(9));
  table.Lookup({7}, 1);
  table.Lookup({8}, 3);
  {
    const ShardLocks locks(table.rows);
    table.counter.Forget(/*shard=*/0, /*max_age=*/1, /*now=*/3);
  }
  EXPECT_EQ(table.Pending(3), (std::vector<int64_t>{8}));
  const ShardLocks locks(table.rows);
  table.counter.Clear();
  EXPECT_EQ(table.counter.pending_ids(0)->size(), 0);
}

// A lookup of step 3 reaches the row after one of step 4.
TEST(OccurrenceCounterTest, ARowIsNotCountedAgainForAStepThatIsOver) {
  Table table(AdmissionPolicy{});
  RowStore& store = table.rows.shard(0).rows;
  ASSERT_TRUE(store.Reserve(1).ok());
  const uint32_t row = store.Allocate();
  store.Publish(row, 7, 2, 1);
  const std::vector<int64_t> ids = {7};
  const std::vector<RowRef> refs = {table.rows.RefTo(0, row)};
  const std::vector<uint32_t> occurrences = {5};
  const RowMeta* const meta = store.meta(row);
  table.step.MoveTo(4);
  for (const int64_t now : {4, 3, 4}) {
    table.counter.Touch(ids, refs, now, {});
    EXPECT_EQ(meta->frequency.load(), 2u);
    EXPECT_EQ(meta->last_seen.load(), 4);
  }
  // Occurrences always count, but do not move last_seen back.
  table.counter.Touch(ids, refs, 3, occurrences);
  EXPECT_EQ(meta->frequency.load(), 7u);
  EXPECT_EQ(meta->last_seen.load(), 4);
  // The step was set back: the row's last_seen is not a step that has begun.
  table.step.Set(1, /*own=*/true);
  table.counter.Touch(ids, refs, 1, {});
  EXPECT_EQ(meta->frequency.load(), 8u);
  EXPECT_EQ(meta->last_seen.load(), 1);
}

TEST(ShardPlanTest, KeepsWhatBelongsTogether) {
  ShardPlan plan;
  plan.rows = {{4, 0, 1}, {5, -1, 2}, {6, 1, 3}};
  plan.tags = {40, 50, 60};
  plan.Keep({1, 0, 1});
  ASSERT_EQ(plan.rows.size(), 2u);
  EXPECT_EQ(plan.rows[0].index, 4);
  EXPECT_EQ(plan.rows[1].index, 6);
  EXPECT_EQ(plan.rows[1].occurrence, 1);
  EXPECT_EQ(plan.rows[1].frequency, 3u);
  EXPECT_EQ(plan.tags, (std::vector<uint32_t>{40, 60}));
}

// A large sketch takes memory as it is used, not by its size.
TEST(OccurrenceCounterTest, ALargeSketchTakesLittleMemoryAtFirst) {
  AdmissionPolicy policy = BySketch(3);
  policy.num_counters = int64_t{1} << 29;
  Table table(policy);
  std::vector<int64_t> ids(100);
  std::iota(ids.begin(), ids.end(), -50);
  [[maybe_unused]] const int64_t before = ResidentBytes();
  for (int64_t step = 0; step < 2; ++step) {
    EXPECT_TRUE(table.Lookup(ids, step).empty());
  }
  EXPECT_EQ(table.counter.sketch_bytes(), policy.num_counters);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(ResidentBytes() - before, 8 << 20);
#endif
  EXPECT_EQ(table.Lookup(ids, 2), ids);
}

}  // namespace
}  // namespace lodestar
