#include "tf_ops/core/snapshot/snapshot_restore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/core/snapshot/snapshot_tables.h"
#include "tf_ops/core/snapshot/restored_records.h"

namespace lodestar {
namespace {

void ExpectRefused(const std::vector<std::string>& files,
                   const EmbeddingStore& like, StatusCode code,
                   const std::string& message, bool reset = false) {
  std::unique_ptr<EmbeddingStore> store;
  ExpectError(Restore(files, like, &store, reset), code, {message});
  EXPECT_EQ(store, nullptr);
}

TEST(SnapshotRestoreTest, AnEmptyTableIsRestored) {
  const auto like = MakeStore();
  const auto store = MustRestore({WholeFile({})}, *like);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->size(), 0);
  EXPECT_EQ(store->step(), 10);
  EXPECT_EQ(Export(*store).optimizer.name, "adagrad");
}

// The index has not grown, and is no larger than necessary.
TEST(SnapshotRestoreTest, ReservesTheIndex) {
  std::vector<int64_t> ids(20000);
  std::iota(ids.begin(), ids.end(), 0);
  const auto store = MustRestore({WholeFile(ids)}, *MakeStore());
  ASSERT_NE(store, nullptr);
  const size_t num_shards = store->row_checks().num_shards();
  int64_t wanted = 0;
  for (size_t s = 0; s < num_shards; ++s) {
    EpochDomain epochs;
    LeafIndex index(&epochs, static_cast<uint32_t>(s));
    ASSERT_TRUE(index.ReserveEvenly(ids.size() / num_shards).ok());
    wanted += index.bytes();
  }
  EXPECT_EQ(store->Stats().index_bytes, wanted);
}

TEST(SnapshotRestoreTest, AReplacementKeepsEventCounts) {
  const auto like = MakeStore();
  FindOrInsert(like.get(), {1, 2, 3});
  const auto store = MustRestore({WholeFile({7})}, *like);
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->CopyLiveState(*like, Table::OwnState(), {}).ok());
  EXPECT_EQ(store->Stats().count(Event::kInserts), 3);
  EXPECT_EQ(store->Stats().count(Event::kMisses),
            like->Stats().count(Event::kMisses));
  EXPECT_EQ(store->Stats().rows, 1);
}

TEST(SnapshotRestoreTest, SlotsMayBeReset) {
  const auto like = MakeStore();
  const auto store = MustRestore({WholeFile({1, 2})}, *like, /*reset=*/true);
  ASSERT_NE(store, nullptr);
  const EmbeddingRows rows = Export(*store);
  EXPECT_EQ(rows.optimizer.name, "");
  EXPECT_EQ(rows.slots.size(), 0);
  EXPECT_EQ(Floats(rows.values), (std::vector<float>{1, 1, 1, 2, 2, 2}));
}

// Returns a table with the optimizer attached by an update.
std::unique_ptr<EmbeddingStore> AttachedTo(const char* optimizer) {
  std::unique_ptr<EmbeddingStore> store = MakeStore();
  std::vector<std::string> names;
  EXPECT_TRUE(SparseOptimizer::SlotNames(optimizer, &names));
  EmbeddingRows rows;
  rows.optimizer = {optimizer, names, std::vector<float>(names.size(), 0.5f)};
  rows.values.Resize(RowType::kFloat32, 0);
  rows.slots.Resize(RowType::kFloat32, 0);
  rows.seed = kSeed;
  rows.salt = kSalt;
  EXPECT_TRUE(ImportInPlaceOf(&store, View(rows)).ok());
  return store;
}

TEST(SnapshotRestoreTest, RejectsOrResetsAnotherOptimizer) {
  const auto like = AttachedTo("adam");
  const std::string file = WholeFile({1});
  ExpectRefused({file}, *like, StatusCode::kFailedPrecondition,
                StrCat("'", file,
                       "': the table has the optimizer slots of 'adam', but "
                       "the update uses 'adagrad'"));
  EXPECT_NE(MustRestore({file}, *like, /*reset=*/true), nullptr);
  EXPECT_NE(MustRestore({file}, *AttachedTo("adagrad")), nullptr);
  SnapshotTable without = Table(true);
  without.optimizer = {};
  const auto plain = MustRestore({WholeFile({1}, without)}, *like);
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(Export(*plain).optimizer.name, "");
}

TEST(SnapshotRestoreTest, RejectsAnUnknownOptimizer) {
  SnapshotTable table = Table(true);
  table.optimizer.name = "future";
  const std::string file = WholeFile({1}, table);
  ExpectRefused({file}, *MakeStore(), StatusCode::kInvalidArgument,
                StrCat("'", file, "': unknown optimizer 'future'."));
  EXPECT_NE(MustRestore({file}, *MakeStore(), /*reset=*/true), nullptr);
}

TEST(SnapshotRestoreTest, RejectsFilesOfOtherRows) {
  SnapshotTable table = Table(true);
  table.dim = 5;
  ExpectRefused({WholeFile({1}, table)}, *MakeStore(),
                StatusCode::kInvalidArgument,
                "the rows have dimension 5, but the table's dimension is 3");
  ExpectRefused({WholeFile({1}, Table(true, RowType::kFloat16))}, *MakeStore(),
                StatusCode::kInvalidArgument,
                "the rows are float16, but the table's rows are float32");
  TablePolicies policies;
  policies.shared_rows = 3;
  table = Table(true);
  table.shared_rows = 4;
  ExpectRefused({WholeFile({1}, table)}, *MakeStore(policies),
                StatusCode::kInvalidArgument,
                "there are 4 shared rows, but the table has 3");
}

TEST(SnapshotRestoreTest, IgnoresSharedRowsOfOneSide) {
  TablePolicies policies;
  policies.shared_rows = 3;
  const auto like = MakeStore(policies);
  const auto fresh = MustRestore({WholeFile({1})}, *like);
  ASSERT_NE(fresh, nullptr);
  EXPECT_EQ(Export(*fresh).shared_values.size(), 3 * kDim);
  SnapshotTable table = Table(true);
  table.shared_rows = 3;
  const std::string path = NewPath("shared");
  FileMaker(path, table)
      .AddRows({RowRecord(table, 0, 1), RowRecord(table, 1, 1),
                RowRecord(table, 2, 1)},
               BlockKind::kSharedRows)
      .Finish();
  const auto without = MustRestore({path}, *MakeStore());
  ASSERT_NE(without, nullptr);
  EXPECT_EQ(Export(*without).shared_values.size(), 0);
}

TEST(SnapshotRestoreTest, RequiresEverySharedRowOnce) {
  TablePolicies policies;
  policies.shared_rows = 3;
  SnapshotTable table = Table(true);
  table.shared_rows = 3;
  const std::string twice = NewPath("twice");
  FileMaker(twice, table)
      .AddRows({RowRecord(table, 0, 1), RowRecord(table, 1, 1),
                RowRecord(table, 0, 1)},
               BlockKind::kSharedRows)
      .Finish();
  ExpectRefused({twice}, *MakeStore(policies), StatusCode::kDataLoss,
                "shared row 0 occurs a second time");
  const std::string part = NewPath("part");
  FileMaker(part, table)
      .AddRows({RowRecord(table, 0, 1)}, BlockKind::kSharedRows)
      .Finish();
  ExpectRefused({part}, *MakeStore(policies), StatusCode::kDataLoss,
                "the file has 1 shared rows, but its table has 3");
}

TEST(SnapshotRestoreTest, RequiresFilesInOrder) {
  const std::string whole = WholeFile({1});
  const std::string delta = NewPath("delta");
  FileMaker(delta, Table(false)).Finish();
  const auto like = MakeStore();
  ExpectRefused({}, *like, StatusCode::kInvalidArgument,
                "there are no snapshot files of the table");
  ExpectRefused({delta}, *like, StatusCode::kInvalidArgument,
                StrCat("'", delta, "' is incremental, but comes first"));
  ExpectRefused({whole, whole}, *like, StatusCode::kInvalidArgument,
                "is a full snapshot, but follows other files");
  const std::string adam = NewPath("adam");
  FileMaker(adam, Table(false, RowType::kFloat32, Adam())).Finish();
  ExpectRefused({whole, adam}, *like, StatusCode::kInvalidArgument,
                "has the optimizer slots of 'adagrad', but");
  EXPECT_NE(MustRestore({whole, adam}, *like, /*reset=*/true), nullptr);
}

TEST(SnapshotRestoreTest, RejectsRepeatedIds) {
  const SnapshotTable table = Table(true);
  const int64_t record = table.record_bytes();
  for (const bool whole : {true, false}) {
    const std::string first = WholeFile({5});
    const std::string path = NewPath("twice");
    FileMaker file(path, Table(whole));
    file.AddRows({RowRecord(table, 7, 1), RowRecord(table, 5, 1)});
    const int64_t block = file.writer()->bytes();
    file.AddRows({RowRecord(table, 6, 1), RowRecord(table, 5, 1)}).Finish();
    const std::string message =
        StrCat("'", path, "', byte ",
               block + SnapshotFileReader::kBlockHeader + record,
               ": id 5 occurs a second time");
    const std::vector<std::string> files =
        whole ? std::vector<std::string>{path}
              : std::vector<std::string>{first, path};
    ExpectRefused(files, *MakeStore(), StatusCode::kDataLoss, message);
    if (whole) continue;
    const auto live = MustRestore({first}, *MakeStore());
    const EmbeddingRows before = Export(*live);
    const Status status = ApplyFile(path, live.get());
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), message);
    ExpectEqual(Export(*live), before);
  }
}

TEST(SnapshotRestoreTest, RejectsMoreRowsThanTheCap) {
  TablePolicies policies;
  policies.eviction.max_rows = 2;
  const std::string file = WholeFile({1, 2, 3});
  ExpectRefused(
      {file}, *MakeStore(policies), StatusCode::kFailedPrecondition,
      StrCat("'", file,
             "': the import makes 3 rows, but `max_rows` of the table is 2"));
  const std::string delta = NewPath("delta");
  FileMaker(delta, Table(false)).AddIds(BlockKind::kRemoved, {2}).Finish();
  EXPECT_NE(MustRestore({file, delta}, *MakeStore(policies)), nullptr);
}

TEST(SnapshotRestoreTest, RejectsOtherKindsOfAdmission) {
  TablePolicies exact;
  exact.admission.kind = AdmissionPolicy::Kind::kMinCount;
  exact.admission.min_count = 3;
  TablePolicies sketch = exact;
  sketch.admission.kind = AdmissionPolicy::Kind::kCountingBloom;
  sketch.admission.num_counters = 8;
  sketch.admission.num_hashes = 2;
  const SnapshotTable table = Table(true);
  const std::string counts = NewPath("counts");
  FileMaker(counts, table)
      .Add(BlockKind::kPending, 1, PendingRecord(5, 1, 2))
      .Finish();
  const std::string counters = NewPath("counters");
  FileMaker(counters, table)
      .Add(BlockKind::kSketch, 9, std::string(9, '\1'))
      .Finish();
  ExpectRefused({counters}, *MakeStore(sketch), StatusCode::kInvalidArgument,
                StrCat("'", counters,
                       "': `sketch` has 9 counters, but the table's admission "
                       "has 8"));
  ExpectRefused({counts}, *MakeStore(sketch), StatusCode::kInvalidArgument,
                "1 ids with exact counts");
  ExpectRefused({counters}, *MakeStore(exact), StatusCode::kInvalidArgument,
                "`sketch` has 9 counters");
  // A table without admission ignores it.
  EXPECT_NE(MustRestore({counts}, *MakeStore()), nullptr);
  EXPECT_NE(MustRestore({counters}, *MakeStore()), nullptr);
  const std::string both = NewPath("both");
  FileMaker(both, table)
      .AddRows({RowRecord(table, 5, 1)})
      .Add(BlockKind::kPending, 1, PendingRecord(5, 1, 2))
      .Finish();
  ExpectRefused({both}, *MakeStore(exact), StatusCode::kDataLoss,
                StrCat("'", both, "': id 5 is pending, but it has a row"));
  const std::string twice = NewPath("twice");
  FileMaker(twice, table)
      .Add(BlockKind::kPending, 2,
           PendingRecord(5, 1, 2) + PendingRecord(5, 2, 2))
      .Finish();
  ExpectRefused({twice}, *MakeStore(exact), StatusCode::kInvalidArgument,
                "`pending_ids` contains 5 twice");
}

TEST(SnapshotRestoreTest, DetectsDamageWithValidChecksums) {
  TablePolicies policies;
  policies.shared_rows = 2;
  policies.eviction.max_age = 5;
  SnapshotTable table = Table(false);
  table.shared_rows = 2;
  const std::string path = NewPath("file");
  FileMaker(path, table)
      .AddIds(BlockKind::kRemoved, {1})
      .AddRows({RowRecord(table, 5, 1), RowRecord(table, 6, 1)})
      .AddRows({RowRecord(table, 0, 1)}, BlockKind::kSharedRows)
      .Finish();
  std::vector<int64_t> blocks;
  {
    std::unique_ptr<SnapshotFileReader> file;
    ASSERT_TRUE(SnapshotFileReader::Open(path, &file).ok());
    for (const auto& block : BlocksOf(*file)) blocks.push_back(block.offset);
  }
  const std::string good = ReadAll(path);
  SnapshotTable whole = Table(true);
  whole.shared_rows = 2;
  const std::string first = NewPath("first");
  FileMaker(first, whole)
      .AddRows({RowRecord(whole, 1, 1)})
      .AddRows({RowRecord(whole, 0, 1), RowRecord(whole, 1, 1)},
               BlockKind::kSharedRows)
      .Finish();
  const auto like = MakeStore(policies);
  std::mt19937 random(1);
  const std::string bad_path = NewPath("bad");
  int taken = 0;
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good;
    const int64_t block = blocks[random() % blocks.size()];
    const int64_t at = block + random() % (good.size() - block);
    const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
    bad[at] = static_cast<char>(values[random() % 5]);
    for (int64_t offset : blocks) Reseal(&bad, offset);
    WriteAll(bad_path, bad);
    std::unique_ptr<EmbeddingStore> store;
    const Status status = Restore({first, bad_path}, *like, &store);
    (status.ok() ? taken : refused) += 1;
    const auto live = MustRestore({first}, *like);
    const EmbeddingRows before = Export(*live);
    const Status applied = ApplyFile(bad_path, live.get());
    if (!applied.ok()) ExpectEqual(Export(*live), before);
    // A live table requires its own seed and slots.
    if (applied.ok()) {
      EXPECT_TRUE(status.ok());
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

TEST(SnapshotRestoreTest, AHostTableHasTheOptionsAndTheStateButNoRows) {
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

TEST(SnapshotRestoreTest, ATableOnAGpuIsRestoredByWayOfIt) {
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
