#include "tf_ops/core/records/tfrecord_format.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/records/record_files.h"
#include "tf_ops/core/base/crc32c.h"

namespace lodestar {
namespace {

std::string Crc(const std::string& bytes) {
  const uint32_t crc = Crc32c(bytes.data(), bytes.size());
  return BytesOf(((crc >> 15) | (crc << 17)) + uint32_t{0xa282ead8});
}

std::string Frame(const std::string& record) {
  const std::string length = BytesOf(uint64_t{record.size()});
  return length + Crc(length) + record + Crc(record);
}

struct Found {
  std::vector<std::string> records;
  Status status;
};

// Reads `file` like a reader that gets `step` more bytes each time.
Found ReadAll(const std::string& file, size_t step) {
  Found found;
  TfrecordCutter cutter(0, 0);
  size_t begin = 0;
  size_t end = 0;
  while (true) {
    end = std::min(file.size(), end + step);
    const bool at_end = end == file.size();
    RecordCut cut;
    // A buffer of the exact size, so that a sanitizer detects reads beyond it.
    const std::vector<char> bytes(file.begin() + begin, file.begin() + end);
    found.status =
        cutter.Next(bytes.data(), bytes.data() + bytes.size(), at_end, &cut);
    if (!found.status.ok() || (cut.records == 0 && at_end)) return found;
    const char* p = bytes.data();
    for (int64_t i = 0; i < cut.records; ++i) {
      std::string_view record;
      found.status = ReadTfrecord(p, &record, &p);
      if (!found.status.ok()) return found;
      found.records.emplace_back(record);
    }
    EXPECT_EQ(p, bytes.data() + cut.bytes);
    begin += cut.bytes;
  }
}

const std::vector<std::string> kRecords = {"one", "", std::string(50, '\0')};

std::string File() {
  std::string file;
  for (const std::string& record : kRecords) file += Frame(record);
  return file;
}

TEST(TfrecordFormatTest, ReadsFilesOfTensorFlow) {
  EXPECT_EQ(Frame("a"), FromHex("01 00 00 00 00 00 00 00 01 75 de 41 "
                                "61 78 6e e4 28"));
  for (const size_t step : {1, 7, 1000}) {
    const Found found = ReadAll(File(), step);
    EXPECT_EQ(found.records, kRecords);
    EXPECT_TRUE(found.status.ok());
  }
}

TEST(TfrecordFormatTest, AnEmptyFileHasNoRecords) {
  const Found found = ReadAll("", 8);
  EXPECT_TRUE(found.records.empty());
  EXPECT_TRUE(found.status.ok());
}

TEST(TfrecordFormatTest, RejectsEveryTruncatedRecordAfterTheOthers) {
  const std::string file = File();
  for (const size_t step : {1, 13, 1000}) {
    for (size_t size = 1; size < file.size(); ++size) {
      const Found found = ReadAll(file.substr(0, size), step);
      const size_t whole = size < 19 ? 0 : size < 35 ? 1 : 2;
      EXPECT_EQ(found.records.size(), whole) << size;
      if (size == 19 || size == 35) {
        EXPECT_TRUE(found.status.ok()) << size;
      } else {
        EXPECT_EQ(found.status.code(), StatusCode::kDataLoss) << size;
        EXPECT_NE(found.status.message().find("the file is truncated"),
                  std::string::npos)
            << size;
      }
    }
  }
}

TEST(TfrecordFormatTest, RejectsEveryDamagedByte) {
  const std::string file = File();
  for (size_t i = 0; i < file.size(); ++i) {
    std::string damaged = file;
    damaged[i] ^= 1;
    const Found found = ReadAll(damaged, 1000);
    EXPECT_EQ(found.status.code(), StatusCode::kDataLoss) << i;
  }
}

TEST(TfrecordFormatTest, ErrorPositionsCountFromTheStartOfTheFile) {
  const std::string file = File();
  TfrecordCutter cutter(1, 19);
  RecordCut cut;
  const char* const begin = file.data() + 19;
  EXPECT_TRUE(cutter.Next(begin, begin + 20, true, &cut).ok());
  EXPECT_EQ(cut.records, 1);
  EXPECT_EQ(cutter.Next(begin + 16, begin + 20, true, &cut).message(),
            "record 2 at byte 35: found 4 bytes, expected 12 for its header: "
            "the file is truncated");
}

}  // namespace
}  // namespace lodestar
