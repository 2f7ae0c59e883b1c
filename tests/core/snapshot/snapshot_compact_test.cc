#include "tf_ops/core/snapshot/snapshot_compact.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/snapshot/snapshot_files.h"
#include "tests/core/testing/allocation_failure.h"
#include "tests/core/testing/errors.h"

namespace lodestar {
namespace {

using Block = SnapshotFileReader::Block;

// The parsed contents of a table's file.
struct Content {
  SnapshotTable table;
  std::map<int64_t, std::string> rows;
  std::map<int64_t, std::string> shared_rows;
  std::string pending;
  std::string sketch;
};

Content ReadContent(const std::string& path) {
  Content content;
  std::unique_ptr<SnapshotFileReader> file;
  EXPECT_TRUE(SnapshotFileReader::Open(path, &file).ok());
  EXPECT_TRUE(ReadTable(*file, &content.table).ok());
  SnapshotScan scan(*file);
  const Status status = scan.ForEach(nullptr, [&](const Block& block) {
    const std::string payload(block.payload.begin(), block.payload.end());
    EXPECT_TRUE(CheckRecords(*file, content.table, block).ok());
    EXPECT_NE(block.kind, BlockKind::kRemoved);
    if (block.kind == BlockKind::kPending) content.pending += payload;
    if (block.kind == BlockKind::kSketch) content.sketch += payload;
    const bool shared = block.kind == BlockKind::kSharedRows;
    if (block.kind != BlockKind::kRows && !shared) return Status();
    const int64_t bytes = content.table.record_bytes();
    for (int64_t i = 0; i < block.count; ++i) {
      const std::string record = payload.substr(i * bytes, bytes);
      const int64_t id = NumberAt<int64_t>(record, 0);
      EXPECT_TRUE((shared ? content.shared_rows : content.rows)
                      .emplace(id, record)
                      .second)
          << id;
    }
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return content;
}

Status Compact(const std::vector<std::string>& paths, const std::string& out) {
  SnapshotFileSummary summary;
  const std::vector<ListedFile> files(paths.begin(), paths.end());
  LODESTAR_RETURN_IF_ERROR(CompactChain(files, out, kTestLabel, &summary));
  SnapshotFileSummary found;
  LODESTAR_RETURN_IF_ERROR(VerifySnapshotFile(out, nullptr, &found));
  EXPECT_EQ(summary.bytes, found.bytes);
  EXPECT_EQ(summary.crc, found.crc);
  EXPECT_TRUE(summary.totals == found.totals);
  return Status();
}

SnapshotTable TableOf(int dim, RowType type, bool whole) {
  SnapshotTable table;
  table.dim = dim;
  table.type = type;
  table.whole = whole;
  table.seed = 5;
  return table;
}

const AttachedOptimizer kAdagrad = {"adagrad", {"accumulator"}, {0.5f}};
const AttachedOptimizer kRowWise = {
    "row_wise_adagrad", {"accumulator"}, {0.5f}};

// Compares all kinds of chains with a map to which every file is applied.
TEST(SnapshotCompactTest, EqualsTheEndOfTheChain) {
  for (const RowType type :
       {RowType::kFloat32, RowType::kFloat16, RowType::kBFloat16}) {
    for (int seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(StrCat(NameOf(type), ", seed ", seed));
      std::mt19937 random(seed);
      SnapshotTable table = TableOf(1 + random() % 9, type, true);
      table.shared_rows = 8;
      std::map<int64_t, float> rows;
      std::map<int64_t, float> shared_rows;
      std::vector<std::string> files;
      const int num_files = 1 + random() % 6;
      const int attached_at = random() % 7;
      const int whole_at = random() % 7;
      std::string pending;
      std::map<int64_t, int64_t> written_at;
      for (int f = 0; f < num_files; ++f) {
        // An id that is removed and written in one file is in both sets.
        std::set<int64_t> removed;
        std::set<int64_t> changed;
        table.whole = f == 0 || f == whole_at;
        table.step = f;
        if (f == attached_at) {
          table.optimizer = seed % 3 == 0 ? kRowWise : kAdagrad;
        }
        for (int i = 0; i < 200; ++i) {
          // 0 and ids of both signs.
          const int64_t id = (static_cast<int64_t>(random() % 150) - 40) *
                             (i % 2 == 0 ? 1 : int64_t{1} << 40);
          if (random() % 4 == 0) {
            rows.erase(id);
            changed.erase(id);
            removed.insert(id);
          } else {
            rows[id] = static_cast<float>(random() % 50);
            written_at[id] = f;
            changed.insert(id);
          }
        }
        const int64_t shared = random() % 8;
        shared_rows[shared] = static_cast<float>(random() % 50);
        const std::string path = NewPath("file" + std::to_string(f));
        FileMaker maker(path, table);
        std::vector<std::string> records;
        if (table.whole) {
          for (const auto& [id, value] : rows) {
            records.push_back(RowRecord(table, id, value, f));
            written_at[id] = f;
          }
        } else {
          maker.AddIds(BlockKind::kRemoved, {removed.begin(), removed.end()});
          for (const int64_t id : changed) {
            records.push_back(RowRecord(table, id, rows.at(id), f));
          }
        }
        std::shuffle(records.begin(), records.end(), random);
        const size_t half = records.size() / 2;
        maker.AddRows({records.begin(), records.begin() + half});
        maker.AddRows({records.begin() + half, records.end()});
        if (table.whole) {
          std::vector<std::string> all;
          for (const auto& [number, value] : shared_rows) {
            all.push_back(RowRecord(table, number, value));
          }
          maker.AddRows(all, BlockKind::kSharedRows);
        } else {
          maker.AddRows({RowRecord(table, shared, shared_rows[shared])},
                        BlockKind::kSharedRows);
        }
        pending = BytesOf(SnapshotPending{f, 1, 2, 0});
        maker.Add(BlockKind::kPending, 1, pending)
            .Add(BlockKind::kSketch, 3, "abc")
            .Finish();
        files.push_back(path);
      }
      const std::string out = NewPath("out");
      const Status status = Compact(files, out);
      ASSERT_TRUE(status.ok()) << status.message();
      const Content content = ReadContent(out);
      EXPECT_TRUE(content.table.whole);
      EXPECT_EQ(content.table.step, num_files - 1);
      EXPECT_EQ(content.table.optimizer.name, table.optimizer.name);
      EXPECT_EQ(content.pending, pending);
      EXPECT_EQ(content.sketch, "abc");
      EXPECT_EQ(content.shared_rows.size(), shared_rows.size());
      ASSERT_EQ(content.rows.size(), rows.size());
      for (const auto& [id, value] : rows) {
        std::string wanted = RowRecord(table, id, value, written_at.at(id));
        if (written_at.at(id) < attached_at && table.optimizer.has_slots()) {
          const std::vector<float> initial(table.layout().slot_width(), 0.5f);
          std::memcpy(wanted.data() + table.layout().slot(0), initial.data(),
                      initial.size() * sizeof(float));
        }
        ASSERT_EQ(content.rows.at(id), wanted) << id;
      }
    }
  }
}

TEST(SnapshotCompactTest, DoesNotOpenFilesBeforeAFullOne) {
  const SnapshotTable whole = TableOf(2, RowType::kFloat32, true);
  const std::string path = NewPath("whole");
  FileMaker(path, whole).AddRows({RowRecord(whole, 3, 1)}).Finish();
  const std::string out = NewPath("out");
  const Status status = Compact({"/nowhere/a", "/nowhere/b", path}, out);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(ReadContent(out).rows.size(), 1);
  // A single file is copied unchanged.
  EXPECT_EQ(ReadAll(out), ReadAll(path));
}

TEST(SnapshotCompactTest, BlocksHaveAMebibyte) {
  const SnapshotTable whole = TableOf(1000, RowType::kFloat32, true);
  const std::string path = NewPath("whole");
  FileMaker maker(path, whole);
  for (int i = 0; i < 1000; ++i) maker.AddRows({RowRecord(whole, i, 1)});
  maker.Finish();
  const std::string out = NewPath("out");
  ASSERT_TRUE(Compact({path}, out).ok());
  EXPECT_EQ(ReadContent(out).rows.size(), 1000);
  std::unique_ptr<SnapshotFileReader> file;
  ASSERT_TRUE(SnapshotFileReader::Open(out, &file).ok());
  EXPECT_EQ(BlocksOf(*file).size(), 1 + 4);
}

TEST(SnapshotCompactTest, RejectsFilesOfDifferentTables) {
  const SnapshotTable whole = TableOf(2, RowType::kFloat32, true);
  const std::string a = NewPath("a");
  FileMaker(a, whole).Finish();
  const auto expect = [&](SnapshotTable table, const std::string& part) {
    table.whole = false;
    const std::string b = NewPath("b");
    FileMaker(b, table).Finish();
    const std::string out = NewPath("out");
    ExpectError(
        Compact({a, b}, out), StatusCode::kInvalidArgument,
        {"'" + a + "' and '" + b + "' belong to different tables: " + part});
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  SnapshotTable table = whole;
  table.dim = 3;
  expect(table, "dim is 2 in the first and 3 in the second");
  table = whole;
  table.type = RowType::kFloat16;
  expect(table, "dtype is float32 in the first and float16 in the second");
  table = whole;
  table.seed = 6;
  expect(table, "the seed is 5 in the first and 6 in the second");
  table = whole;
  table.salt = 1;
  expect(table, "the salt is 0");
  table = whole;
  table.shared_rows = 4;
  expect(table, "the number of shared rows is 0");
  SnapshotTable sgd = whole;
  sgd.optimizer = {"sgd", {}, {}};
  std::filesystem::remove(a);
  FileMaker(a, sgd).Finish();
  table.shared_rows = 0;
  table.optimizer = kAdagrad;
  expect(table,
         "the optimizer is 'sgd' with slots [] in the first and 'adagrad' with "
         "slots [accumulator] in the second");
  expect(whole, "the optimizer is 'sgd'");
}

TEST(SnapshotCompactTest, AChainNeedsAFullFile) {
  const std::string delta = NewPath("delta");
  FileMaker(delta, TableOf(2, RowType::kFloat32, false)).Finish();
  const std::string out = NewPath("out");
  ExpectError(Compact({delta, delta}, out), StatusCode::kInvalidArgument,
              {"'" + delta + "' is incremental"});
  ExpectError(Compact({}, out), StatusCode::kInvalidArgument, {"no files"});
  ExpectError(Compact({NewPath("none"), delta}, out), StatusCode::kNotFound,
              {"none': No such file"});
  WriteAll(out, "x");
  const std::string whole = NewPath("whole");
  FileMaker(whole, TableOf(2, RowType::kFloat32, true)).Finish();
  ExpectError(Compact({whole, delta}, out), StatusCode::kAlreadyExists, {out});
  EXPECT_EQ(ReadAll(out), "x");
}

TEST(SnapshotCompactTest, DamageIsReportedAndLeavesAFileWithoutEnd) {
  SnapshotTable table = TableOf(2, RowType::kFloat32, true);
  const std::string whole = NewPath("whole");
  FileMaker(whole, table).AddRows({RowRecord(table, 3, 1)}).Finish();
  table.whole = false;
  const std::string delta = NewPath("delta");
  const std::string row = RowRecord(table, 3, 1);
  FileMaker(delta, table).AddRows({row, row}).Finish();
  std::string out = NewPath("out");
  ExpectError(Compact({whole, delta}, out), StatusCode::kDataLoss,
              {delta, "byte 208: record 1 of the ROWS block has id 3"});
  SnapshotFileSummary unused;
  ExpectError(VerifySnapshotFile(out, nullptr, &unused), StatusCode::kDataLoss,
              {out, "ends here"});

  // Also if the id was removed earlier in the file.
  std::filesystem::remove(delta);
  FileMaker(delta, table)
      .AddIds(BlockKind::kRemoved, {3})
      .AddRows({row, row})
      .Finish();
  ExpectError(Compact({whole, delta}, NewPath("out")), StatusCode::kDataLoss,
              {delta, "record 1 of the ROWS block has id 3"});

  std::filesystem::remove(delta);
  FileMaker(delta, table).AddRows({row}).Finish();
  std::string bytes = ReadAll(whole);
  bytes[180] ^= 1;
  WriteAll(whole, bytes);
  out = NewPath("out");
  ExpectError(
      Compact({whole, delta}, out), StatusCode::kDataLoss,
      {whole, "byte 176: the checksum of the ROWS block's 32 bytes is"});
}

TEST(SnapshotCompactTest, OutOfMemoryIsAnError) {
  SnapshotTable table = TableOf(2, RowType::kFloat32, true);
  const std::string whole = NewPath("whole");
  FileMaker(whole, table).AddRows({RowRecord(table, 3, 1)}).Finish();
  table.whole = false;
  const std::string delta = NewPath("delta");
  FileMaker(delta, table)
      .AddIds(BlockKind::kRemoved, {3})
      .AddRows({RowRecord(table, 4, 1)})
      .Finish();
  const std::vector<ListedFile> files = {whole, delta};
  const std::string out = NewPath("out");
  int failures = 0;
  for (int64_t count = 0;; ++count) {
    SnapshotFileSummary summary;
    Status status;
    bool failed;
    {
      FailAllocation failure(count);
      status = CompactChain(files, out, kTestLabel, &summary);
      failed = failure.failed();
    }
    if (!failed) {
      EXPECT_TRUE(status.ok()) << status.message();
      break;
    }
    // An optional mapping may fail without an error.
    if (!status.ok()) {
      ++failures;
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted)
          << status.message();
    }
    std::filesystem::remove(out);
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace lodestar
