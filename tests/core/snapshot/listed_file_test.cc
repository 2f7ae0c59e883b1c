#include "tf_ops/core/snapshot/listed_file.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/core/snapshot/snapshot_files.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {
namespace {

TEST(ListedFileTest, AFileMustBeAsListed) {
  SnapshotTable table;
  table.dim = 1;
  table.whole = false;
  const std::string path = NewPath("delta");
  FileMaker(path, table)
      .AddIds(BlockKind::kRemoved, {1, 2})
      .AddRows({RowRecord(table, 7, 1.5f)})
      .Finish();
  std::unique_ptr<SnapshotFileReader> file;
  ASSERT_TRUE(SnapshotFileReader::Open(path, &file).ok());
  SnapshotScan scan(*file, /*payloads=*/true);
  const auto skip = [](const SnapshotFileReader::Block&) { return Status(); };
  ASSERT_TRUE(scan.ForEach(nullptr, skip).ok());
  const ListedFile::Content content = {scan.crc(), 1, 2};
  EXPECT_TRUE(ListedFile(path).Check(scan).ok());
  EXPECT_TRUE(ListedFile(path, content).Check(scan).ok());
  const auto expect = [&](const ListedFile::Content& listed,
                          const std::string& message) {
    const Status status = ListedFile(path, listed).Check(scan);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find(message), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find(path), std::string::npos);
  };
  expect({content.crc32c + 1, 1, 2}, "the file has the checksum");
  expect({content.crc32c, 2, 2},
         "has 1 rows and 2 removed ids, but 2 and 2 in its manifest");
  expect({content.crc32c, 1, 0},
         "has 1 rows and 2 removed ids, but 1 and 0 in its manifest");
}

}  // namespace
}  // namespace lodestar
