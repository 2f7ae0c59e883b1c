#include "tf_ops/core/snapshot/snapshot_file_format.h"

#include <gtest/gtest.h>

#include <string>

namespace lodestar {
namespace {

TEST(SnapshotFileFormatTest, HeadersHaveAChecksum) {
  SnapshotFileHeader file = SnapshotFileHeader::Create(2);
  EXPECT_EQ(std::string(file.magic, 8), "LODESNAP");
  EXPECT_EQ(file.crc, file.Crc());
  file.version = 3;
  EXPECT_NE(file.crc, file.Crc());
  SnapshotBlockHeader block =
      SnapshotBlockHeader::Create(BlockKind::kRemoved, 3, 24, 7);
  EXPECT_EQ(std::memcmp(&block.magic, "LSBK", 4), 0);
  EXPECT_EQ(block.crc, block.Crc());
  block.count = 4;
  EXPECT_NE(block.crc, block.Crc());
}

TEST(SnapshotFileFormatTest, PayloadsArePaddedToEightBytes) {
  for (const int64_t bytes : {0, 1, 7, 8, 9, 4097}) {
    EXPECT_EQ((bytes + PaddingOf(bytes)) % 8, 0);
    EXPECT_LT(PaddingOf(bytes), 8);
  }
}

TEST(SnapshotFileFormatTest, CrcWithBlockCoversAllBytes) {
  const std::string payload = "twelve bytes";
  const SnapshotBlockHeader header = SnapshotBlockHeader::Create(
      BlockKind::kBlob, 12, 12, Crc32c(payload.data(), payload.size()));
  std::string file = "before";
  const uint32_t before = Crc32c(file.data(), file.size());
  file.append(reinterpret_cast<const char*>(&header), sizeof(header));
  file += payload + std::string(PaddingOf(12), '\0');
  EXPECT_EQ(CrcWithBlock(before, header), Crc32c(file.data(), file.size()));
}

TEST(SnapshotFileFormatTest, RecordsOfFixedSize) {
  EXPECT_EQ(RecordBytesOf(BlockKind::kRemoved), 8);
  EXPECT_EQ(RecordBytesOf(BlockKind::kPending), 24);
  EXPECT_EQ(RecordBytesOf(BlockKind::kLabel), 1);
  EXPECT_EQ(RecordBytesOf(BlockKind::kRows), 0);
}

}  // namespace
}  // namespace lodestar
