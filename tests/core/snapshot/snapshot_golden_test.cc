// Golden files stay readable, and the writer produces the same bytes.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/snapshot/golden_snapshots.h"
#include "tests/core/snapshot/snapshot_files.h"
#include "tf_ops/core/snapshot/snapshot_compact.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {
namespace {

using Block = SnapshotFileReader::Block;

std::string Golden(const std::string& name) { return kGoldenFolder + name; }

// Returns the payloads of a file by kind, and its table.
std::map<BlockKind, std::string> Read(const std::string& path,
                                      SnapshotTable* table) {
  std::map<BlockKind, std::string> payloads;
  std::unique_ptr<SnapshotFileReader> file;
  const Status open = SnapshotFileReader::Open(path, &file);
  EXPECT_TRUE(open.ok()) << open.message();
  if (!open.ok()) return payloads;
  if (table != nullptr) {
    const Status status = ReadTable(*file, table);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  SnapshotScan scan(*file);
  const Status status = scan.ForEach(nullptr, [&](const Block& block) {
    payloads[block.kind].append(block.payload.begin(), block.payload.end());
    return table == nullptr ? Status() : CheckRecords(*file, *table, block);
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return payloads;
}

void ExpectTable(const SnapshotTable& found, const SnapshotTable& wanted) {
  EXPECT_EQ(found.dim, wanted.dim);
  EXPECT_EQ(found.type, wanted.type);
  EXPECT_EQ(found.whole, wanted.whole);
  EXPECT_EQ(found.optimizer.name, wanted.optimizer.name);
  EXPECT_EQ(found.optimizer.slot_names, wanted.optimizer.slot_names);
  EXPECT_EQ(found.optimizer.slot_inits, wanted.optimizer.slot_inits);
  EXPECT_EQ(found.step, wanted.step);
  EXPECT_EQ(found.seed, wanted.seed);
  EXPECT_EQ(found.salt, wanted.salt);
  EXPECT_EQ(found.own_step, wanted.own_step);
  EXPECT_EQ(found.shared_rows, wanted.shared_rows);
}

TEST(SnapshotGoldenTest, SmallFileByHand) {
  SnapshotTable table;
  const auto payloads = Read(Golden("small.snapshot"), &table);
  ExpectTable(table, SmallGolden());
  const std::string bytes = ReadAll(Golden("small.snapshot"));
  EXPECT_EQ(bytes.substr(0, 12), std::string("LODESNAP\x02\0\0\0", 12));
  EXPECT_EQ(bytes.substr(48, 32), LabelOfGolden());
  // id 42, last seen at 6, frequency 2, value 1.5, 4 bytes of padding.
  EXPECT_EQ(payloads.at(BlockKind::kRows),
            std::string("\x2a\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"
                        "\0\0\xc0\x3f\0\0\0\0",
                        32));
}

TEST(SnapshotGoldenTest, AWholeTable) {
  SnapshotTable table;
  const auto payloads = Read(Golden("whole.snapshot"), &table);
  ExpectTable(table, WholeGolden());
  const std::string& rows = payloads.at(BlockKind::kRows);
  const int64_t bytes = 24 + 8 + 16 + 16;
  ASSERT_EQ(rows.size(), 3 * bytes);
  EXPECT_EQ(NumberAt<int64_t>(rows, bytes), INT64_MIN);
  EXPECT_EQ(NumberAt<int64_t>(rows, bytes + 8), -1);
  EXPECT_EQ(NumberAt<int64_t>(rows, 2 * bytes), INT64_MAX);
  EXPECT_EQ(NumberAt<uint32_t>(rows, 2 * bytes + 16), 0xffffffffu);
  // -1 in 16 bits, then m = -1 + 1 and v = -1 + 2.
  EXPECT_EQ(NumberAt<uint16_t>(rows, 24 + 4), 0xbc00);
  EXPECT_EQ(NumberAt<float>(rows, 32 + 8), 0.0f);
  EXPECT_EQ(NumberAt<float>(rows, 48 + 8), 1.0f);
  EXPECT_EQ(NumberAt<int64_t>(payloads.at(BlockKind::kPending), 0), -7);
  EXPECT_EQ(payloads.at(BlockKind::kSketch),
            std::string("\x00\x01\x02\x03\xff", 5));
  EXPECT_EQ(payloads.at(BlockKind::kSharedRows),
            RowRecord(table, 0, 8.0f) + RowRecord(table, 1, 9.0f));
}

TEST(SnapshotGoldenTest, AnIncrementalFileAppliedToTheTable) {
  SnapshotTable table;
  const auto payloads = Read(Golden("delta.snapshot"), &table);
  ExpectTable(table, DeltaGolden());
  EXPECT_EQ(payloads.at(BlockKind::kRemoved),
            BytesOf(INT64_MIN) + BytesOf(int64_t{5}));
  const std::string out = NewPath("out");
  SnapshotFileSummary summary;
  const std::vector<ListedFile> chain = {Golden("whole.snapshot"),
                                         Golden("delta.snapshot")};
  const Status status = CompactChain(chain, out, kTestLabel, &summary);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto compacted = Read(out, &table);
  EXPECT_EQ(table.step, 110);
  EXPECT_EQ(compacted.at(BlockKind::kRows),
            RowRecord(table, 0, -2.0f, 109, 2) +
                RowRecord(table, 5, 4.0f, 110, 1) +
                RowRecord(table, INT64_MAX, 2.0f, 100, 0xffffffffu));
  EXPECT_EQ(compacted.at(BlockKind::kSharedRows),
            RowRecord(table, 1, 10.0f) + RowRecord(table, 0, 8.0f));
}

TEST(SnapshotGoldenTest, Blobs) {
  EXPECT_EQ(Read(Golden("blobs.snapshot"), nullptr).at(BlockKind::kBlob),
            "denseweights!");
}

TEST(SnapshotGoldenTest, WritesTheSameBytes) {
  const std::string folder = NewPath("folder") + "/";
  std::filesystem::create_directory(folder);
  WriteGoldens(folder);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(ReadAll(folder + name), ReadAll(Golden(name))) << name;
    ++files;
  }
  EXPECT_EQ(files, 4);
}

}  // namespace
}  // namespace lodestar
