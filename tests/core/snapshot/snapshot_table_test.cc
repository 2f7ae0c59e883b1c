#include "tf_ops/core/snapshot/snapshot_table.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/snapshot/snapshot_files.h"
#include "tests/core/testing/threads.h"
#include "tf_ops/core/rows/row_store.h"

namespace lodestar {
namespace {

SnapshotTable Adam(int dim, RowType type) {
  SnapshotTable table;
  table.dim = dim;
  table.type = type;
  table.optimizer = {"adam", {"m", "velocity"}, {0.0f, 0.25f}};
  table.step = 12;
  table.seed = -3;
  table.salt = 1LL << 40;
  table.own_step = true;
  table.shared_rows = 2;
  return table;
}

Status Verify(const std::string& path, SnapshotFileSummary* summary = nullptr) {
  SnapshotFileSummary unused;
  const ParallelFor threads = Threads(3);
  return VerifySnapshotFile(path, &threads,
                            summary == nullptr ? &unused : summary);
}

void ExpectDamage(const Status& status, const std::string& path,
                  const std::string& part) {
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
  const std::string start = "'" + path + "', byte ";
  EXPECT_EQ(status.message().compare(0, start.size(), start), 0)
      << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos)
      << "'" << part << "' is not in: " << status.message();
}

TEST(SnapshotTableTest, RoundTripsTables) {
  SnapshotTable named = Adam(5, RowType::kBFloat16);
  named.optimizer = {"replay:mine", {"", "a", "four", "\x01\n"}, {1, 2, 3, 4}};
  named.whole = false;
  SnapshotTable sgd = Adam(65536, RowType::kFloat32);
  sgd.optimizer = {"sgd", {}, {}};
  for (const SnapshotTable& table :
       {SnapshotTable(), Adam(8, RowType::kFloat32), named, sgd}) {
    const std::string path = NewPath("file");
    FileMaker(path, table).Finish();
    std::unique_ptr<SnapshotFileReader> file;
    ASSERT_TRUE(SnapshotFileReader::Open(path, &file).ok());
    SnapshotTable read;
    const Status status = ReadTable(*file, &read);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(read.dim, table.dim);
    EXPECT_EQ(read.type, table.type);
    EXPECT_EQ(read.whole, table.whole);
    EXPECT_EQ(read.optimizer.name, table.optimizer.name);
    EXPECT_EQ(read.optimizer.slot_names, table.optimizer.slot_names);
    EXPECT_EQ(read.optimizer.slot_inits, table.optimizer.slot_inits);
    EXPECT_EQ(read.step, table.step);
    EXPECT_EQ(read.seed, table.seed);
    EXPECT_EQ(read.salt, table.salt);
    EXPECT_EQ(read.own_step, table.own_step);
    EXPECT_EQ(read.shared_rows, table.shared_rows);
    EXPECT_EQ(read.record_bytes(), table.record_bytes());
  }
}

TEST(SnapshotTableTest, PartsOfARecordAreAligned) {
  // Values of 3 x 2 bytes, slots of 3 x 4.
  const SnapshotRowLayout half(3, RowType::kFloat16, {2});
  EXPECT_EQ(half.values(), 24);
  EXPECT_EQ(half.value_bytes(), 6);
  EXPECT_EQ(half.slot_bytes(), 12);
  EXPECT_EQ(half.slot(0), 32);
  EXPECT_EQ(half.slot(1), 48);
  EXPECT_EQ(half.bytes(), 64);
  EXPECT_EQ(SnapshotRowLayout(1, RowType::kFloat32, {}).bytes(), 32);
  EXPECT_EQ(SnapshotRowLayout(2, RowType::kFloat32, {1}).bytes(), 24 + 8 + 8);
  // The widest record fits a block.
  EXPECT_LT(SnapshotRowLayout(65536, RowType::kFloat32, {RowStore::kMaxSlots})
                .bytes(),
            SnapshotFileReader::kMaxPayload);
}

TEST(SnapshotTableTest, FieldsOfATableAreChecked) {
  const std::string path = NewPath("file");
  const std::string good = EncodeTable(Adam(8, RowType::kFloat32));
  const auto expect = [&](const std::string& payload, const std::string& part) {
    std::filesystem::remove(path);
    FileMaker(path).Add(BlockKind::kTable, 1, payload).Finish();
    ExpectDamage(Verify(path), path, part);
  };
  const auto with = [&](int64_t at, auto number) {
    std::string payload = good;
    SetNumber(&payload, at, number);
    return payload;
  };
  expect(with(0, uint32_t{0}), "byte 88: the table's dim is 0, expected 1 to");
  expect(with(0, uint32_t{65537}), "dim is 65537, expected 1 to 65536");
  expect(with(4, uint32_t{3}),
         "byte 92: the table's type is 3, expected 0 to 2");
  expect(with(8, uint32_t{4}), "byte 96: the table's flags are 4");
  expect(with(12, uint32_t{5}), "byte 100: the table's number of slots is 5");
  expect(with(12, ~uint32_t{0}), "number of slots is 4294967295");
  expect(with(40, int64_t{-1}),
         "byte 128: the table's number of shared rows is -1");
  // "adam", "m", "velocity".
  expect(with(48, uint32_t{100}),
         "byte 136: the optimizer's name has 100 bytes, but only 32 are left");
  expect(with(48, ~uint32_t{0}), "name has 4294967295 bytes");
  expect(with(48, uint32_t{0}),
         "byte 100: the table's number of slots is 2 with");
  expect(with(61, 'x'), "the padding of the name of an optimizer slot is not");
  expect(good.substr(0, 47),
         "byte 88: the TABLE block ends, expected the fixed");
  expect(good.substr(0, good.size() - 1),
         "ends, expected the initial values of the optimizer slots");
  expect(good.substr(0, 50), "ends, expected the optimizer's name");
  expect(good + std::string(4, '\0'), "has 4 bytes after its last field");
  SnapshotTable twice = Adam(8, RowType::kFloat32);
  twice.optimizer.slot_names = {"m", "m"};
  expect(EncodeTable(twice), "the optimizer has two slots 'm'");
  std::filesystem::remove(path);
  FileMaker(path).Add(BlockKind::kBlob, 1, "x").Finish();
  std::unique_ptr<SnapshotFileReader> file;
  ASSERT_TRUE(SnapshotFileReader::Open(path, &file).ok());
  SnapshotTable unused;
  ExpectDamage(ReadTable(*file, &unused), path,
               "byte 56: the first block is BLOB, expected TABLE");
}

TEST(SnapshotTableTest, RecordsAreChecked) {
  const std::string path = NewPath("file");
  SnapshotTable table = Adam(3, RowType::kFloat16);
  table.optimizer = {"adagrad", {"accumulator"}, {0.1f}};
  const std::string row = RowRecord(table, 9, 1.0f);
  ASSERT_EQ(row.size(), 24 + 8 + 16);
  const auto file_of = [&](BlockKind kind, int64_t count,
                           const std::string& payload) {
    std::filesystem::remove(path);
    FileMaker(path, table).Add(kind, count, payload).Finish();
    return Verify(path);
  };
  const auto with = [](std::string payload, int64_t at, auto number) {
    SetNumber(&payload, at, number);
    return payload;
  };
  EXPECT_TRUE(file_of(BlockKind::kRows, 2, row + row).ok());
  EXPECT_TRUE(file_of(BlockKind::kRows, 0, "").ok());
  ExpectDamage(file_of(BlockKind::kRows, 2, row + row.substr(2) + "xx"), path,
               "record 1 of the ROWS block");
  ExpectDamage(file_of(BlockKind::kRows, 2, row + row + row + row), path,
               "the ROWS block has 2 records in 192 bytes, expected 48 bytes");
  ExpectDamage(file_of(BlockKind::kRows, 2, with(row + row, 48 + 20, 7)), path,
               "record 1 of the ROWS block has 7 after the frequency");
  for (const int64_t padding : {30, 31, 44, 47}) {
    ExpectDamage(file_of(BlockKind::kRows, 1, with(row, padding, 'x')), path,
                 "record 0 of the ROWS block has padding that is not 0");
  }
  const std::string shared = RowRecord(table, 1, 1.0f);
  EXPECT_TRUE(file_of(BlockKind::kSharedRows, 1, shared).ok());
  for (const int64_t number : {-1, 2}) {
    ExpectDamage(
        file_of(BlockKind::kSharedRows, 1, with(shared, 0, number)), path,
        "has shared row " + std::to_string(number) + ", but the table has 2");
  }
  const std::string pending = BytesOf(SnapshotPending{5, 3, 2, 0});
  EXPECT_TRUE(file_of(BlockKind::kPending, 2, pending + pending).ok());
  ExpectDamage(file_of(BlockKind::kPending, 2, pending + with(pending, 20, 1)),
               path,
               "record 1 of the PENDING block has 1 after the occurrences");
  ExpectDamage(file_of(BlockKind::kRemoved, 1, BytesOf(int64_t{4})), path,
               "REMOVED, but it is a full snapshot");
  table.whole = false;
  EXPECT_TRUE(file_of(BlockKind::kRemoved, 1, BytesOf(int64_t{4})).ok());
}

TEST(SnapshotTableTest, VerifyCountsTheContents) {
  const std::string path = NewPath("table");
  SnapshotTable table = Adam(4, RowType::kFloat32);
  table.whole = false;
  FileMaker maker(path, table);
  maker.AddIds(BlockKind::kRemoved, {1, 2, 3})
      .AddRows({RowRecord(table, 4, 1), RowRecord(table, 5, 1)})
      .AddRows({RowRecord(table, 6, 1)})
      .AddRows({RowRecord(table, 0, 1)}, BlockKind::kSharedRows)
      .Add(BlockKind::kPending, 1, BytesOf(SnapshotPending{7, 8, 9, 0}))
      .Add(BlockKind::kSketch, 5, "12345")
      .Finish();
  SnapshotFileSummary summary;
  const Status status = Verify(path, &summary);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(summary.bytes, maker.writer()->bytes());
  EXPECT_EQ(summary.crc, maker.writer()->crc());
  EXPECT_EQ(summary.totals.rows, 3);
  EXPECT_EQ(summary.totals.removed, 3);
  EXPECT_EQ(summary.totals.shared_rows, 1);
  EXPECT_EQ(summary.totals.pending, 1);
  EXPECT_EQ(summary.totals.sketch, 5);

  const std::string blobs = NewPath("blobs");
  FileMaker(blobs)
      .Add(BlockKind::kBlob, 3, "abc")
      .Add(BlockKind::kBlob, 4, "defg")
      .Finish();
  ASSERT_TRUE(Verify(blobs, &summary).ok());
  EXPECT_EQ(summary.totals.blobs, 7);
}

}  // namespace
}  // namespace lodestar
