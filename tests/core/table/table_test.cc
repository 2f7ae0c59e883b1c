#include "tf_ops/core/table/table.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

std::unique_ptr<Table> MakeTable() {
  std::unique_ptr<EmbeddingStore> store;
  EXPECT_TRUE(EmbeddingStore::Create(2, 4, RowInitializer(), &store).ok());
  return store;
}

TEST(TableTest, OptionsOutOfRangeAreErrors) {
  EXPECT_TRUE(Table::CheckOptions(kMaxDim, TablePolicies()).ok());
  EXPECT_EQ(Table::CheckOptions(0, TablePolicies()).message(),
            "`dim` must be in [1, 65536], got 0.");
  using Kind = AdmissionPolicy::Kind;
  const struct {
    std::function<void(TablePolicies*)> change;
    const char* message;
  } cases[] = {
      {[](auto* p) { p->eviction.max_rows = -1; },
       "`max_rows` must be at least 0, got -1."},
      {[](auto* p) { p->eviction.min_norm_every = 0; },
       "`min_norm_every` must be at least 1, got 0."},
      {[](auto* p) { p->eviction.min_frequency_every = -3; },
       "`min_frequency_every` must be at least 1, got -3."},
      {[](auto* p) { p->admission = {Kind::kMinCount, 0}; },
       "`min_count` must be in [1, 4294967295], got 0."},
      {[](auto* p) { p->admission = {Kind::kCountingBloom, 256}; },
       "`min_count` must be in [1, 255], got 256."},
      {[](auto* p) { p->admission = {Kind::kCountingBloom, 2}; },
       "`num_counters` must be in [1, 2^40], got 0."},
  };
  for (const auto& [change, message] : cases) {
    TablePolicies policies;
    change(&policies);
    EXPECT_EQ(Table::CheckOptions(1, policies).message(), message);
  }
}

TEST(TableTest, AnExecutionHoldsWhatItIsMadeFrom) {
  EXPECT_EQ(Execution().parallel(), nullptr);
  const ParallelFor parallel;
  EXPECT_EQ(Execution(&parallel).parallel(), &parallel);
}

TEST(TableTest, StepsOfSeveralTablesMove) {
  const std::unique_ptr<Table> tables[] = {MakeTable(), MakeTable(),
                                           MakeTable()};
  EXPECT_TRUE(tables[1]->SetStep(7).ok());
  std::vector<Table::NextStep> steps = {{tables[0].get(), 5},
                                        {tables[1].get(), 9},
                                        {tables[2].get(), Table::kSameStep}};
  ASSERT_TRUE(Table::MoveSteps(Span<Table::NextStep>(steps), {}).ok());
  EXPECT_EQ(tables[0]->step(), 5);
  EXPECT_EQ(tables[1]->step(), 7);
  EXPECT_EQ(tables[2]->step(), 0);
  tables[1]->ReleaseStep();
  ASSERT_TRUE(Table::MoveSteps(Span<Table::NextStep>(steps), {}).ok());
  EXPECT_EQ(tables[0]->step(), 6);
  EXPECT_EQ(tables[1]->step(), 9);
}

TEST(TableTest, ReadsAndBatchesAreCountedUntilTheyAreSubtracted) {
  const std::unique_ptr<Table> table = MakeTable();
  const std::vector<float> rows = {1, 2, 3, 4};
  ASSERT_TRUE(
      table->InsertOrAssign(std::vector<int64_t>{3, 5}, rows.data(), {}).ok());
  std::vector<float> read(4);
  bool found[2];
  ASSERT_TRUE(table
                  ->FindRows(std::vector<int64_t>{5, 4}, nullptr, Missing(),
                             read.data(), found, {})
                  .ok());
  EXPECT_EQ(read, (std::vector<float>{3, 4, 0, 0}));
  EXPECT_TRUE(found[0] && !found[1]);
  table->CountBatch(9, 6, 2);
  table->CountNonfiniteGradients(1);
  EmbeddingStats stats;
  ASSERT_TRUE(table->ReadStats(&stats, {}).ok());
  int64_t size = 0;
  ASSERT_TRUE(table->ReadSize(&size, {}).ok());
  EXPECT_EQ(size, 2);
  EXPECT_EQ(stats.rows, 2);
  EXPECT_EQ(stats.count(Event::kReadHits), 1);
  EXPECT_EQ(stats.count(Event::kReadMisses), 1);
  EXPECT_EQ(stats.count(Event::kIds), 9);
  EXPECT_EQ(stats.count(Event::kUniqueIds), 6);
  EXPECT_EQ(stats.count(Event::kPadding), 2);
  EXPECT_EQ(stats.count(Event::kNonfiniteGradients), 1);
  table->SubtractEvents(stats);
  ASSERT_TRUE(table->ReadStats(&stats, {}).ok());
  for (const int64_t count : stats.events) EXPECT_EQ(count, 0);
}

TEST(TableTest, AReplacementHoldsTheRowsAndTheLiveState) {
  const std::unique_ptr<Table> table = MakeTable();
  const std::vector<int64_t> ids = {8, 1};
  const std::vector<float> values = {1, 2, 3, 4};
  const std::vector<int64_t> numbers = {5, 6};
  EmbeddingRowsView view;
  view.ids = ids;
  view.values = values;
  view.frequencies = numbers;
  view.last_seen = numbers;
  std::unique_ptr<Table> next;
  ASSERT_TRUE(table->CreateReplacement(view, {}, &next).ok());
  EXPECT_TRUE(table->SetStep(11).ok());
  table->CountBatch(3, 2, 1);
  ASSERT_TRUE(next->CopyLiveState(*table, view, {}).ok());
  EXPECT_EQ(next->step(), 11);
  EmbeddingRows rows;
  ASSERT_TRUE(next->Export(true, &rows, {}).ok());
  EXPECT_EQ(rows.ids, (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(rows.frequencies, (std::vector<int64_t>{6, 5}));
  ASSERT_TRUE(next->ExportIds(&rows, {}).ok());
  EXPECT_EQ(rows.ids, (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(rows.values.size(), 0);
  EmbeddingStats stats;
  ASSERT_TRUE(next->ReadStats(&stats, {}).ok());
  EXPECT_EQ(stats.count(Event::kIds), 3);
}

TEST(TableTest, SumsOfGradientsAreFloatsWithRoomForMore) {
  EXPECT_TRUE(CheckAccumulates(RowType::kFloat32).ok());
  EXPECT_EQ(CheckAccumulates(RowType::kFloat16).message(),
            "rows of float16 do not support gradient accumulation.");
  EXPECT_EQ(LimitOfTerms(0), std::numeric_limits<float>::max() / 4);
  EXPECT_EQ(LimitOfTerms(8, 2), std::numeric_limits<float>::max() / 64);
}

}  // namespace
}  // namespace lodestar
