#include "tf_ops/core/snapshot/snapshot_delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/snapshot/snapshot_tables.h"
#include "tests/core/testing/errors.h"

namespace lodestar {
namespace {

TEST(SnapshotDeltaTest, RejectsAnIncompatibleTable) {
  const auto live = MustRestore({WholeFile({1, 2})}, *MakeStore());
  ASSERT_NE(live, nullptr);
  const EmbeddingRows before = Export(*live);
  const auto expect_refused = [&](const SnapshotTable& table, StatusCode code,
                                  const std::string& message) {
    const std::string path = NewPath("delta");
    FileMaker(path, table).AddRows({RowRecord(table, 1, 9)}).Finish();
    ExpectError(ApplyFile(path, live.get()), code, {message});
    ExpectEqual(Export(*live), before);
  };
  expect_refused(Table(true), StatusCode::kInvalidArgument,
                 "is a full snapshot, expected an incremental one");
  SnapshotTable table = Table(false);
  table.salt = 5;
  expect_refused(
      table, StatusCode::kInvalidArgument,
      "belongs to a table with seed 11 and salt 5, but this one has 11 "
      "and 12");
  expect_refused(
      Table(false, RowType::kFloat32, Adam()), StatusCode::kFailedPrecondition,
      "the table has the optimizer slots of 'adagrad', but the update uses "
      "'adam'");
  expect_refused(
      Table(false, RowType::kFloat32, {}), StatusCode::kFailedPrecondition,
      "has no optimizer slots, but the table has those of 'adagrad'");
  expect_refused(Table(false, RowType::kFloat16), StatusCode::kInvalidArgument,
                 "the rows are float16");
}

TEST(SnapshotDeltaTest, ATableTakesThePartOfItsIds) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < 40; ++id) ids.push_back(id);
  const SnapshotTable table = Table(false);
  const std::string delta_path = NewPath("delta");
  std::vector<std::string> records;
  for (int64_t id = 10; id < 60; ++id) {
    records.push_back(RowRecord(table, id, 99));
  }
  FileMaker(delta_path, table)
      .AddIds(BlockKind::kRemoved, {0, 1, 2, 3, 4, 5, 6, 7})
      .AddRows(records)
      .Finish();
  const std::string whole_path = WholeFile(ids);
  std::vector<int64_t> found;
  for (const uint32_t number : {0u, 1u, 2u}) {
    const TablePart part = {number, 3};
    const std::vector<SavedPart> saved = {{{}, {whole_path}}};
    std::unique_ptr<EmbeddingStore> store;
    ASSERT_TRUE(
        RestoreTable(saved, part, *MakeStore(), {}, nullptr, &store).ok());
    std::unique_ptr<SnapshotDelta> delta;
    SnapshotDelta::Applied applied;
    ASSERT_TRUE(SnapshotDelta::Open(std::vector<ListedFile>{delta_path}, part,
                                    store.get(), {}, {}, &delta)
                    .ok());
    ASSERT_TRUE(delta->Apply(&applied).ok());
    const EmbeddingRows rows = Export(*store);
    for (size_t i = 0; i < rows.ids.size(); ++i) {
      const int64_t id = rows.ids[i];
      EXPECT_TRUE(part.Has(id)) << id;
      EXPECT_EQ(Floats(rows.values)[i * kDim], id < 10 ? id : 99) << id;
      found.push_back(id);
    }
  }
  std::sort(found.begin(), found.end());
  ids.erase(ids.begin(), ids.begin() + 8);
  for (int64_t id = 40; id < 60; ++id) ids.push_back(id);
  EXPECT_EQ(found, ids);
}

TEST(SnapshotDeltaTest, ACapIsKept) {
  TablePolicies policies;
  policies.eviction.max_rows = 3;
  const auto capped = MustRestore({WholeFile({1, 2, 3})}, *MakeStore(policies));
  const auto before = Export(*capped);
  const SnapshotTable table = Table(false);
  const std::string full = NewPath("delta");
  FileMaker(full, table).AddRows({RowRecord(table, 4, 9)}).Finish();
  ExpectError(ApplyFile(full, capped.get()), StatusCode::kFailedPrecondition,
              {"makes 4 rows, but `max_rows` of the table is 3"});
  ExpectEqual(Export(*capped), before);
  // Removed rows free capacity.
  const std::string fits = NewPath("delta");
  FileMaker(fits, table)
      .AddIds(BlockKind::kRemoved, {1, 2, 7})
      .AddRows({RowRecord(table, 4, 9), RowRecord(table, 2, 8)})
      .Finish();
  ASSERT_TRUE(ApplyFile(fits, capped.get()).ok());
  EXPECT_EQ(Export(*capped).ids, (std::vector<int64_t>{2, 3, 4}));
}

TEST(SnapshotDeltaTest, SlotsMayBeReset) {
  const std::string path = NewPath("delta");
  const SnapshotTable table = Table(false, RowType::kFloat32, Adam());
  FileMaker(path, table)
      .AddRows({RowRecord(table, 1, 9), RowRecord(table, 3, 8)})
      .Finish();
  // A served table has no slots.
  const auto served =
      MustRestore({WholeFile({1, 2})}, *MakeStore(), /*reset=*/true);
  ASSERT_TRUE(ApplyFile(path, served.get(), nullptr, /*reset=*/true).ok());
  EmbeddingRows rows = Export(*served);
  EXPECT_EQ(rows.optimizer.name, "");
  EXPECT_EQ(Floats(rows.values),
            (std::vector<float>{9, 9, 9, 2, 2, 2, 8, 8, 8}));
  // With the initial slots of another optimizer.
  const auto trained = MustRestore({WholeFile({1, 2})}, *MakeStore());
  ASSERT_TRUE(ApplyFile(path, trained.get(), nullptr, /*reset=*/true).ok());
  rows = Export(*trained);
  EXPECT_EQ(rows.optimizer.name, "adagrad");
  EXPECT_EQ(Floats(rows.slots),
            (std::vector<float>{.5f, .5f, .5f, 3, 3, 3, .5f, .5f, .5f}));
}

TEST(SnapshotDeltaTest, CountsWrittenAndRemovedRows) {
  const auto live = MustRestore({WholeFile({1, 2, 3})}, *MakeStore());
  const std::string path = NewPath("delta");
  const SnapshotTable table = Table(false);
  FileMaker(path, table)
      .AddIds(BlockKind::kRemoved, {1, 2, 99})
      .AddRows({RowRecord(table, 2, 9), RowRecord(table, 4, 8)})
      .Finish();
  SnapshotDelta::Applied applied;
  ASSERT_TRUE(ApplyFile(path, live.get(), &applied).ok());
  EXPECT_EQ(applied.written, 2);
  EXPECT_EQ(applied.removed, 1);
  EXPECT_EQ(Export(*live).ids, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(live->size(), 3);
  EXPECT_EQ(live->step(), 11);
  EXPECT_EQ(live->Stats().count(Event::kRemoved), 1);
}

// Removed twice since the base, and written again each time.
TEST(SnapshotDeltaTest, AnIdRemovedTwiceAndWrittenHasItsRow) {
  const auto live = MustRestore({WholeFile({1, 2, 3})}, *MakeStore());
  const std::string path = NewPath("delta");
  const SnapshotTable table = Table(false);
  FileMaker(path, table)
      .AddIds(BlockKind::kRemoved, {2, 3, 2, 3, 2})
      .AddRows({RowRecord(table, 2, 9)})
      .Finish();
  SnapshotDelta::Applied applied;
  ASSERT_TRUE(ApplyFile(path, live.get(), &applied).ok());
  EXPECT_EQ(applied.written, 1);
  EXPECT_EQ(applied.removed, 1);
  const EmbeddingRows rows = Export(*live);
  EXPECT_EQ(rows.ids, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Floats(rows.values), (std::vector<float>{1, 1, 1, 9, 9, 9}));
}

// Apply reads the file again, and it may have been modified.
TEST(SnapshotDeltaTest, RejectsAFileThatChangesAfterTheCheck) {
  const auto live = MustRestore({WholeFile({1, 2})}, *MakeStore());
  const EmbeddingRows before = Export(*live);
  const std::string path = NewPath("delta");
  const SnapshotTable table = Table(false);
  FileMaker(path, table)
      .AddRows({RowRecord(table, 1, 9), RowRecord(table, 2, 9)})
      .Finish();
  std::unique_ptr<SnapshotDelta> delta;
  ASSERT_TRUE(SnapshotDelta::Open(std::vector<ListedFile>{path}, {}, live.get(),
                                  {}, {}, &delta)
                  .ok());
  // Records that extend beyond the file.
  std::string bytes = ReadAll(path);
  const int64_t rows = bytes.size() - 80 - 32 - 2 * table.record_bytes();
  SetNumber<uint64_t>(&bytes, rows + 8, 2 * table.record_bytes());
  Reseal(&bytes, rows);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << bytes;
  SnapshotDelta::Applied applied;
  ExpectError(delta->Apply(&applied), StatusCode::kDataLoss, {"records in"});
  ExpectEqual(Export(*live), before);
}

// All values of a row are equal: no row mixes two files, no kept row is ever
// missing, and no row goes back.
TEST(SnapshotDeltaTest, LookupsContinueWhileRowsSwitch) {
  constexpr int64_t kIds = 32;
  constexpr int kDeltas = 300;
  // Wide rows take a while to write.
  constexpr int kWide = 1024;
  const auto table_of = [](bool whole) {
    SnapshotTable table = Table(whole);
    table.dim = kWide;
    return table;
  };
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < kIds; ++id) ids.push_back(id);
  const auto live =
      MustRestore({WholeFile({}, table_of(true))},
                  *MakeStore(TablePolicies(), 4, RowType::kFloat32, kWide));
  std::vector<std::string> files;
  for (int d = 0; d < kDeltas; ++d) {
    const SnapshotTable table = table_of(false);
    files.push_back(NewPath(StrCat(d)));
    FileMaker file(files.back(), table);
    // Every other id is removed and inserted again.
    std::vector<int64_t> removed;
    std::vector<std::string> records;
    for (int64_t id : ids) {
      if (id % 2 != 0 && d % 2 != 0) {
        removed.push_back(id);
      } else {
        records.push_back(RowRecord(table, id, static_cast<float>(d)));
      }
    }
    file.AddIds(BlockKind::kRemoved, removed);
    for (size_t i = 0; i < records.size(); i += 20) {
      file.AddRows({records.begin() + i,
                    records.begin() + std::min(i + 20, records.size())});
    }
    file.Finish();
  }
  ASSERT_TRUE(ApplyFile(files[0], live.get()).ok());
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      std::vector<float> last(kIds, 0.0f);
      std::vector<float> rows(kIds * kWide);
      std::unique_ptr<bool[]> found(new bool[kIds]);
      while (!done.load(std::memory_order_relaxed)) {
        live->Find(ids, nullptr, Missing(), rows.data(), found.get(), nullptr);
        for (int64_t i = 0; i < kIds; ++i) {
          const float* row = rows.data() + i * kWide;
          if (!found[i]) {
            EXPECT_EQ(i % 2, 1);
            continue;
          }
          EXPECT_EQ(std::count(row, row + kWide, row[0]), kWide);
          EXPECT_GE(row[0], last[i]);
          last[i] = row[0];
        }
      }
    });
  }
  for (int d = 1; d < kDeltas; ++d) {
    const Status status = ApplyFile(files[d], live.get());
    EXPECT_TRUE(status.ok()) << status.message();
  }
  done.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(live->size(), kIds / 2);
}

}  // namespace
}  // namespace lodestar
