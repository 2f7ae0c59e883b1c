#include "tf_ops/core/snapshot/snapshot_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/snapshot/snapshot_files.h"
#include "tests/core/testing/errors.h"
#include "tests/core/testing/threads.h"
#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {
namespace {

using Block = SnapshotFileReader::Block;

std::unique_ptr<SnapshotFileReader> Open(const std::string& path) {
  std::unique_ptr<SnapshotFileReader> reader;
  const Status status = SnapshotFileReader::Open(path, &reader);
  EXPECT_TRUE(status.ok()) << status.message();
  return reader;
}

// Returns the first error of reading a whole file.
Status ReadFile(const std::string& path) {
  std::unique_ptr<SnapshotFileReader> reader;
  LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(path, &reader));
  SnapshotScan scan(*reader);
  return scan.ForEach(nullptr, [](const Block&) { return Status(); });
}

// Writes LABEL, TABLE, REMOVED, ROWS, SKETCH and END. Some payloads need
// padding.
std::string SmallFile(const std::string& path,
                      const std::string& label = kTestLabel) {
  SnapshotTable table;
  table.whole = false;
  FileMaker(path, table, label)
      .AddIds(BlockKind::kRemoved, {7, -1})
      .AddRows({RowRecord(table, 5, 1.5f)})
      .Add(BlockKind::kSketch, 3, "abc")
      .Finish();
  return ReadAll(path);
}

TEST(SnapshotFileTest, RoundTripsBlocks) {
  const std::string path = NewPath("file");
  std::mt19937 random(1);
  struct Wanted {
    BlockKind kind;
    int64_t count;
    std::string payload;
  };
  std::vector<Wanted> wanted = {{BlockKind::kTable, 1, "some table"}};
  for (int i = 0; i < 40; ++i) {
    // Empty blocks, which are omitted, and blocks larger than the writer's
    // buffer.
    const int64_t count =
        i % 7 == 0 ? 0 : 1 + random() % (i % 5 == 0 ? 200000 : 30);
    std::string payload(count * 24, '\0');
    for (char& byte : payload) byte = static_cast<char>(random());
    wanted.push_back(
        {i % 2 == 0 ? BlockKind::kRows : BlockKind::kPending, count, payload});
  }
  FileMaker maker(path);
  int64_t rows = 0;
  for (const Wanted& block : wanted) {
    maker.Add(block.kind, block.count, block.payload);
    if (block.kind == BlockKind::kRows) rows += block.count;
  }
  maker.Finish();
  EXPECT_EQ(maker.writer()->totals().rows, rows);
  wanted.erase(
      std::remove_if(wanted.begin(), wanted.end(),
                     [](const Wanted& block) { return block.count == 0; }),
      wanted.end());
  const std::string bytes = ReadAll(path);
  EXPECT_EQ(maker.writer()->bytes(), bytes.size());
  EXPECT_EQ(maker.writer()->crc(), Crc32c(bytes.data(), bytes.size()));

  const auto reader = Open(path);
  EXPECT_EQ(reader->size(), bytes.size());
  SnapshotTotals totals;
  const std::vector<Block> headers = BlocksOf(*reader, &totals);
  EXPECT_TRUE(totals == maker.writer()->totals());
  ASSERT_EQ(headers.size(), wanted.size());
  int64_t offset = reader->first_block();
  for (size_t i = 0; i < wanted.size(); ++i) {
    Block block;
    ASSERT_TRUE(reader->ReadBlock(offset, &block).ok());
    EXPECT_EQ(block.kind, wanted[i].kind);
    EXPECT_EQ(block.count, wanted[i].count);
    EXPECT_EQ(std::string(block.payload.begin(), block.payload.end()),
              wanted[i].payload);
    EXPECT_EQ(headers[i].offset, offset);
    EXPECT_EQ(headers[i].next, block.next);
    offset = block.next;
  }
  Block end;
  ASSERT_TRUE(reader->ReadBlock(offset, &end).ok());
  EXPECT_EQ(end.kind, BlockKind::kEnd);
  EXPECT_EQ(end.next, -1);
}

TEST(SnapshotFileTest, AFileWithoutBlocks) {
  const std::string path = NewPath("file");
  FileMaker(path).Finish();
  EXPECT_EQ(ReadAll(path).size(), kAfterLabel + 32 + 48);
  EXPECT_TRUE(BlocksOf(*Open(path)).empty());
}

TEST(SnapshotFileTest, ThreadsShareAScan) {
  const std::string path = NewPath("file");
  FileMaker maker(path);
  const int kBlocks = 300;
  for (int i = 0; i < kBlocks; ++i) {
    maker.Add(BlockKind::kBlob, 1000 + i, std::string(1000 + i, char(i)));
  }
  maker.Finish();
  const std::string bytes = ReadAll(path);
  const auto reader = Open(path);
  SnapshotScan scan(*reader);
  std::mutex mutex;
  std::set<int64_t> offsets;
  const ParallelFor threads = Threads(8);
  const Status status = scan.ForEach(&threads, [&](const Block& block) {
    const int64_t i = block.bytes - 1000;
    EXPECT_EQ(std::string(block.payload.begin(), block.payload.end()),
              std::string(1000 + i, char(i)));
    std::lock_guard<std::mutex> lock(mutex);
    offsets.insert(block.offset);
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(offsets.size(), kBlocks);
  EXPECT_EQ(scan.crc(), Crc32c(bytes.data(), bytes.size()));
  EXPECT_EQ(scan.totals().blobs, 1000 * kBlocks + kBlocks * (kBlocks - 1) / 2);
}

TEST(SnapshotFileTest, ReportsTheFirstErrorInTheFile) {
  const std::string path = NewPath("file");
  FileMaker maker(path);
  for (int i = 0; i < 100; ++i) {
    maker.Add(BlockKind::kBlob, 8, "12345678");
  }
  maker.Finish();
  std::string bytes = ReadAll(path);
  for (const int block : {90, 31, 30})
    bytes[kAfterLabel + 40 * block + 32] ^= 1;
  WriteAll(path, bytes);
  const auto reader = Open(path);
  const ParallelFor threads = Threads(8);
  for (int i = 0; i < 20; ++i) {
    SnapshotScan scan(*reader);
    ExpectError(scan.ForEach(&threads, [](const Block&) { return Status(); }),
                StatusCode::kDataLoss,
                {path, "byte 1288: the checksum of the BLOB block's 8 bytes"});
  }
  SnapshotScan scan(*reader);
  ExpectError(scan.ForEach(&threads,
                           [](const Block& block) {
                             return block.offset == 456 ? DataLoss("mine")
                                                        : Status();
                           }),
              StatusCode::kDataLoss, {"mine"});
}

TEST(SnapshotFileTest, ReportsAnEarlierErrorThatOccursLater) {
  const std::string path = NewPath("file");
  FileMaker(path)
      .Add(BlockKind::kBlob, 8, "12345678")
      .Add(BlockKind::kBlob, 8, "12345678")
      .Finish();
  const auto reader = Open(path);
  SnapshotScan scan(*reader);
  const ParallelFor threads = Threads(2);
  std::atomic<bool> failed{false};
  ExpectError(
      scan.ForEach(&threads,
                   [&](const Block& block) {
                     if (block.offset != kAfterLabel) {
                       failed = true;
                       return DataLoss("second");
                     }
                     while (!failed) std::this_thread::yield();
                     // The other thread has yet to report its error.
                     std::this_thread::sleep_for(std::chrono::milliseconds(50));
                     return DataLoss("first");
                   }),
      StatusCode::kDataLoss, {"first"});
}

TEST(SnapshotFileTest, ALabelPrecedesTheOtherBlocks) {
  const std::string path = NewPath("file");
  const std::string good = SmallFile(path, "of a table");
  const auto reader = Open(path);
  Block label;
  ASSERT_TRUE(reader->ReadBlock(SnapshotFileReader::kFirstBlock, &label).ok());
  EXPECT_EQ(label.kind, BlockKind::kLabel);
  EXPECT_EQ(reader->label(), "of a table");
  EXPECT_EQ(reader->first_block(), label.next);
  SnapshotFileSummary summary;
  ASSERT_TRUE(VerifySnapshotFile(path, nullptr, &summary).ok());
  EXPECT_EQ(summary.crc, Crc32c(good.data(), good.size()));
  const auto expect = [&](const std::string& bytes, const std::string& part) {
    WriteAll(path, bytes);
    ExpectError(ReadFile(path), StatusCode::kDataLoss, {path, part});
  };
  expect(good.substr(0, 16) + good.substr(label.next),
         "byte 16: the first block is a TABLE block, expected LABEL");
  expect(good.substr(0, label.next) + good.substr(16),
         "byte 64: a LABEL block, but LABEL must be the first block");
  std::unique_ptr<SnapshotFileWriter> writer;
  ExpectError(SnapshotFileWriter::Create(NewPath("none"), "", &writer),
              StatusCode::kInvalidArgument, {"must have a label"});
}

TEST(SnapshotFileTest, DetectsEveryChangedBit) {
  const std::string path = NewPath("file");
  const std::string good = SmallFile(path);
  ASSERT_TRUE(ReadFile(path).ok());
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[at] ^= 1 << bit;
      WriteAll(path, bytes);
      ExpectError(ReadFile(path), StatusCode::kDataLoss, {path, "byte "});
    }
  }
}

TEST(SnapshotFileTest, DetectsTruncatedAndLongerFiles) {
  const std::string path = NewPath("file");
  const std::string good = SmallFile(path, "label");
  for (size_t size = 0; size < good.size(); ++size) {
    WriteAll(path, good.substr(0, size));
    ExpectError(ReadFile(path), StatusCode::kDataLoss,
                {path, "byte " + std::to_string(size), "ends here"});
  }
  for (const int more : {1, 8, 100}) {
    WriteAll(path, good + std::string(more, '\0'));
    ExpectError(ReadFile(path), StatusCode::kDataLoss,
                {path, "byte " + std::to_string(good.size()),
                 std::to_string(more) + " bytes after END"});
  }
}

TEST(SnapshotFileTest, HeadersAreChecked) {
  const std::string path = NewPath("file");
  const std::string good = SmallFile(path);
  const auto expect = [&](int64_t at, auto number, const std::string& part) {
    std::string bytes = good;
    SetNumber(&bytes, at, number);
    Reseal(&bytes, kAfterLabel);
    WriteAll(path, bytes);
    ExpectError(ReadFile(path), StatusCode::kDataLoss, {path, part});
  };
  expect(56, uint32_t{1}, "byte 56: the block begins with 00000001");
  expect(60, uint16_t{0}, "byte 56: the block's kind is 0, expected 1 to 9");
  expect(60, uint16_t{10}, "byte 56: the block's kind is 10");
  expect(62, uint16_t{3}, "has 3 after its kind");
  expect(64, uint64_t{2}, "the TABLE block has 2 records in 52 bytes");
  expect(72, ~uint64_t{0},
         "has 18446744073709551615 bytes, expected at most 67108864");
  expect(72, uint64_t{4096}, "block at byte 56 ends at byte 4184: the file is");
  expect(60, uint16_t{2}, "byte 56: a ROWS block, but the file does not begin");
  const int64_t removed = kAfterLabel + 32 + 56;
  for (const uint64_t count :
       {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 61) + 2}) {
    std::string bytes = good;
    SetNumber(&bytes, removed + 8, count);
    Reseal(&bytes, removed);
    WriteAll(path, bytes);
    ExpectError(ReadFile(path), StatusCode::kDataLoss,
                {"byte 144: the REMOVED block has " + std::to_string(count) +
                 " records in 16 bytes"});
  }
}

TEST(SnapshotFileTest, RejectsOtherFormatVersions) {
  const std::string path = NewPath("file");
  for (const uint32_t version : {1u, 3u}) {
    std::string bytes = SmallFile(NewPath("file"));
    SetNumber(&bytes, 8, version);
    SetNumber(&bytes, 12, Crc32c(bytes.data(), 12));
    WriteAll(path, bytes);
    ExpectError(
        ReadFile(path), StatusCode::kUnimplemented,
        {path, StrCat("of version ", version, ", but only version 2 is")});
  }
}

TEST(SnapshotFileTest, BlocksHaveAnOrder) {
  const std::string path = NewPath("file");
  const SnapshotTable table;
  const std::string payload = EncodeTable(table);
  const std::string row = RowRecord(table, 1, 1);
  const auto expect = [&](FileMaker maker, const std::string& part) {
    maker.Finish();
    ExpectError(ReadFile(path), StatusCode::kDataLoss, {path, part});
    std::filesystem::remove(path);
  };
  expect(std::move(FileMaker(path, table).Add(BlockKind::kTable, 1, payload)),
         "a TABLE block, but TABLE must be the first block");
  expect(std::move(FileMaker(path, table).Add(BlockKind::kBlob, 1, "x")),
         "a BLOB block, but the file contains a table");
  expect(
      std::move(FileMaker(path).Add(BlockKind::kBlob, 1, "x").AddRows({row})),
      "a ROWS block, but the file does not begin with TABLE");
  expect(std::move(FileMaker(path, table)
                       .AddRows({row})
                       .AddIds(BlockKind::kRemoved, {1})),
         "a REMOVED block, but REMOVED must precede ROWS");
}

TEST(SnapshotFileTest, EndDetectsMissingBlocks) {
  const std::string path = NewPath("file");
  const std::string good = SmallFile(path);
  // Removes the ROWS block, so that the remaining blocks are in order.
  const int64_t rows = kAfterLabel + 32 + 56 + 32 + 16;
  WriteAll(path, good.substr(0, rows) + good.substr(rows + 32 + 32));
  ExpectError(ReadFile(path), StatusCode::kDataLoss,
              {path, "the file has 0 rows, 2 removed ids",
               "but END has 1 rows, 2 removed ids"});
}

// An empty block could be lost without detection.
TEST(SnapshotFileTest, RejectsAnEmptyBlock) {
  const std::string path = NewPath("file");
  std::string bytes = SmallFile(path);
  const int64_t removed = kAfterLabel + 32 + 56;
  std::string empty = bytes.substr(removed, 32);
  SetNumber(&empty, 8, uint64_t{0});
  SetNumber(&empty, 16, uint64_t{0});
  Reseal(&empty, 0);
  bytes.insert(removed, empty);
  WriteAll(path, bytes);
  ExpectError(ReadFile(path), StatusCode::kDataLoss,
              {"byte 144: the REMOVED block has 0 records in 0 bytes"});
}

TEST(SnapshotFileTest, RejectsOffsetsWithoutABlock) {
  const std::string path = NewPath("file");
  SmallFile(path);
  const auto reader = Open(path);
  Block block;
  for (const int64_t offset : {-8, 0, 8, 17, 20}) {
    ExpectError(reader->ReadBlock(offset, &block), StatusCode::kInvalidArgument,
                {path, "no block begins here"});
  }
  for (const int64_t offset :
       {reader->size() / 8 * 8, int64_t{1} << 40, INT64_MAX - 7}) {
    ExpectError(reader->ReadBlock(offset, &block), StatusCode::kDataLoss,
                {path, "the file ends here"});
  }
}

TEST(SnapshotFileTest, ReportsSystemErrors) {
  std::unique_ptr<SnapshotFileReader> reader;
  std::unique_ptr<SnapshotFileWriter> writer;
  const std::string path = NewPath("file");
  ExpectError(SnapshotFileReader::Open(path, &reader), StatusCode::kNotFound,
              {"cannot open '" + path + "': No such file"});
  ExpectError(SnapshotFileReader::Open(testing::TempDir(), &reader),
              StatusCode::kInvalidArgument, {"is not a regular file"});
  SmallFile(path);
  ExpectError(SnapshotFileWriter::Create(path, "label", &writer),
              StatusCode::kAlreadyExists,
              {"cannot create '" + path + "': File exists"});
  ExpectError(SnapshotFileWriter::Create(path + "/below", "label", &writer),
              StatusCode::kNotFound, {"Not a directory"});
}

TEST(SnapshotFileTest, AWriterChecksItsBlocks) {
  const std::string path = NewPath("file");
  FileMaker maker(path);
  SnapshotFileWriter* const writer = maker.writer();
  const std::vector<char> big(SnapshotFileReader::kMaxPayload + 1);
  ExpectError(writer->Append(BlockKind::kBlob, big.size(), big.data(),
                             static_cast<int64_t>(big.size())),
              StatusCode::kInvalidArgument,
              {path, "the payload has 67108865 bytes, expected 0 to 67108864"});
  ExpectError(writer->Append(BlockKind::kRemoved, 3, big.data(), 16),
              StatusCode::kInvalidArgument,
              {path, "a REMOVED block of 3 records in 16 bytes"});
  ExpectError(writer->Append(BlockKind::kRows, 3, big.data(), 16),
              StatusCode::kInvalidArgument, {"3 records in 16 bytes"});
  ExpectError(writer->Append(BlockKind::kRows, -1, big.data(), 16),
              StatusCode::kInvalidArgument, {"-1 records"});
  ExpectError(writer->Append(BlockKind::kEnd, 6, big.data(), 48),
              StatusCode::kInvalidArgument, {"END is written by Finish()"});
  ExpectError(writer->Append(BlockKind::kLabel, 1, big.data(), 1),
              StatusCode::kInvalidArgument, {"LABEL is written by Create()"});
  // These errors did not damage the file, and the largest payload is read.
  maker.Add(BlockKind::kBlob, SnapshotFileReader::kMaxPayload,
            std::string(SnapshotFileReader::kMaxPayload, 'x'));
  maker.Finish();
  EXPECT_TRUE(ReadFile(path).ok());
  ExpectError(writer->Append(BlockKind::kBlob, 1, big.data(), 1),
              StatusCode::kFailedPrecondition, {path, "is already finished"});
  ExpectError(writer->Finish(), StatusCode::kFailedPrecondition,
              {"is already finished"});
}

TEST(SnapshotFileTest, ReportsAFullDisk) {
  // Uses a file size limit, since no file can be created on a full disk.
  const std::string path = NewPath("file");
  const rlimit wide = [] {
    rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    return limit;
  }();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit narrow = wide;
  narrow.rlim_cur = 6 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &narrow), 0);
  {
    FileMaker maker(path);
    const std::string payload(1 << 20, 'x');
    Status status;
    int blocks = 0;
    while (status.ok() && blocks < 20) {
      status = maker.writer()->Append(BlockKind::kBlob, payload.size(),
                                      payload.data(), payload.size());
      ++blocks;
    }
    EXPECT_LT(blocks, 20);
    ExpectError(status, StatusCode::kResourceExhausted,
                {"cannot write '" + path + "': File too large"});
    // The error persists, and so do the written bytes.
    ExpectError(maker.writer()->Finish(), StatusCode::kResourceExhausted,
                {"File too large"});
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &wide), 0);
  EXPECT_EQ(std::filesystem::file_size(path), 6 << 20);
  ExpectError(ReadFile(path), StatusCode::kDataLoss, {"the file is truncated"});
}

TEST(SnapshotFileTest, AWriterThatIsDroppedLeavesAFileWithoutEnd) {
  const std::string path = NewPath("file");
  {
    FileMaker(path).Add(BlockKind::kBlob, 1, "x");
  }
  EXPECT_TRUE(std::filesystem::exists(path));
  ExpectError(ReadFile(path), StatusCode::kDataLoss, {path, "byte 0"});
}

TEST(SnapshotFileTest, AFileMustBeAsListed) {
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
  SnapshotScan scan(*file);
  const auto skip = [](const SnapshotFileReader::Block&) { return Status(); };
  ASSERT_TRUE(scan.ForEach(nullptr, skip).ok());
  const ListedFile::Content content = {scan.crc(), 1, 2};
  EXPECT_TRUE(ListedFile(path).Check(scan).ok());
  EXPECT_TRUE(ListedFile(path, content).Check(scan).ok());
  const auto expect = [&](const ListedFile::Content& listed,
                          const std::string& message) {
    ExpectError(ListedFile(path, listed).Check(scan), StatusCode::kDataLoss,
                {message, path});
  };
  expect({content.crc32c + 1, 1, 2}, "the file has the checksum");
  expect({content.crc32c, 2, 2},
         "has 1 rows and 2 removed ids, but 2 and 2 in its manifest");
  expect({content.crc32c, 1, 0},
         "has 1 rows and 2 removed ids, but 1 and 0 in its manifest");
}

TEST(SnapshotFileTest, FileCrcCoversAllBytes) {
  const std::string path = NewPath("file");
  for (const int64_t size : {0, 1, 9, 1 << 20, (1 << 20) + 1, 5000000}) {
    std::string bytes(size, 'a');
    for (int64_t i = 0; i < size; i += 7) bytes[i] = static_cast<char>(i);
    WriteAll(path, bytes);
    int64_t found = -1;
    uint32_t crc = 1;
    ASSERT_TRUE(FileCrc(path, &found, &crc).ok());
    EXPECT_EQ(found, size);
    EXPECT_EQ(crc, Crc32c(bytes.data(), size));
  }
}

TEST(SnapshotFileTest, FileCrcRejectsMissingFilesAndFolders) {
  int64_t bytes = 0;
  uint32_t crc = 0;
  EXPECT_EQ(FileCrc(NewPath("none"), &bytes, &crc).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(FileCrc(testing::TempDir(), &bytes, &crc).code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lodestar
