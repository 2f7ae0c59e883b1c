// Helpers that make, parse and damage snapshot files.

#ifndef LODESTAR_TESTS_CORE_SNAPSHOT_SNAPSHOT_FILES_H_
#define LODESTAR_TESTS_CORE_SNAPSHOT_SNAPSHOT_FILES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {

// Returns a path that is unique to this test and does not exist.
inline std::string NewPath(const std::string& name) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string file =
      StrCat(test->test_suite_name(), ".", test->name(), ".", name);
  // The names of parametrized tests contain slashes.
  std::replace(file.begin(), file.end(), '/', '-');
  const std::string path = testing::TempDir() + file;
  std::filesystem::remove_all(path);
  return path;
}

inline std::string ReadAll(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void WriteAll(const std::string& path, const std::string& bytes) {
  // A truncated and rewritten file might be flushed to disk immediately.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

template <typename T>
std::string BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Returns the number of type T at byte `at` of a file.
template <typename T>
T NumberAt(const std::string& file, int64_t at) {
  T number;
  std::memcpy(&number, file.data() + at, sizeof(number));
  return number;
}
template <typename T>
void SetNumber(std::string* file, int64_t at, T number) {
  std::memcpy(file->data() + at, &number, sizeof(number));
}

// Recomputes the checksums of the block at `offset`, within the file.
inline void Reseal(std::string* file, int64_t offset) {
  const int64_t size = static_cast<int64_t>(file->size());
  if (offset + 32 > size) return;
  const uint64_t bytes = NumberAt<uint64_t>(*file, offset + 16);
  if (bytes <= static_cast<uint64_t>(size - offset - 32)) {
    SetNumber(file, offset + 24, Crc32c(file->data() + offset + 32, bytes));
  }
  SetNumber(file, offset + 28, Crc32c(file->data() + offset, 28));
}

// Returns the headers of all blocks except END, in order.
inline std::vector<SnapshotFileReader::Block> BlocksOf(
    const SnapshotFileReader& file, SnapshotTotals* totals = nullptr) {
  std::vector<SnapshotFileReader::Block> headers;
  SnapshotScan scan(file);
  const Status status =
      scan.ForEach(nullptr, [&](const SnapshotFileReader::Block& block) {
        headers.push_back(block);
        return Status();
      });
  EXPECT_TRUE(status.ok()) << status.message();
  if (totals != nullptr) *totals = scan.totals();
  return headers;
}

// A record of `layout` whose values are `value`, and whose values of slot s are
// `value` + s + 1.
inline std::string RowRecord(const SnapshotTable& table, int64_t id,
                             float value, int64_t last_seen = 0,
                             uint32_t frequency = 1) {
  const SnapshotRowLayout layout = table.layout();
  std::string record(layout.bytes(), '\0');
  const SnapshotRowHead head = {id, last_seen, frequency, 0};
  std::memcpy(record.data(), &head, sizeof(head));
  VisitRowType(table.type, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> values(table.dim, RoundTo<T>(value));
    std::memcpy(record.data() + layout.values(), values.data(),
                layout.value_bytes());
  });
  for (int64_t s = 0; s < layout.slots(); ++s) {
    const std::vector<float> values(layout.slot_width(), value + s + 1);
    std::memcpy(record.data() + layout.slot(s), values.data(),
                values.size() * sizeof(float));
  }
  return record;
}

// The label of files that tests do not name, and the offset of what follows it.
constexpr char kTestLabel[] = "8 bytes.";
constexpr int64_t kAfterLabel = 16 + 32 + 8;

// Builds a file; every step must succeed.
class FileMaker {
 public:
  explicit FileMaker(const std::string& path,
                     const std::string& label = kTestLabel) {
    const Status status = SnapshotFileWriter::Create(path, label, &writer_);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  FileMaker(const std::string& path, const SnapshotTable& table,
            const std::string& label = kTestLabel)
      : FileMaker(path, label) {
    Add(BlockKind::kTable, 1, EncodeTable(table));
  }

  FileMaker& Add(BlockKind kind, int64_t count, const std::string& payload) {
    const Status status =
        writer_->Append(kind, count, payload.data(), payload.size());
    EXPECT_TRUE(status.ok()) << status.message();
    return *this;
  }
  FileMaker& AddIds(BlockKind kind, const std::vector<int64_t>& ids) {
    std::string payload;
    for (const int64_t id : ids) payload += BytesOf(id);
    return Add(kind, ids.size(), payload);
  }
  FileMaker& AddRows(const std::vector<std::string>& records,
                     BlockKind kind = BlockKind::kRows) {
    std::string payload;
    for (const std::string& record : records) payload += record;
    return Add(kind, records.size(), payload);
  }
  void Finish() {
    const Status status = writer_->Finish();
    EXPECT_TRUE(status.ok()) << status.message();
  }

  SnapshotFileWriter* writer() { return writer_.get(); }

 private:
  std::unique_ptr<SnapshotFileWriter> writer_;
};

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_SNAPSHOT_SNAPSHOT_FILES_H_
