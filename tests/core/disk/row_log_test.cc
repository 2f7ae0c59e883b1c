#include "tf_ops/core/disk/row_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/testing/allocation_failure.h"
#include "tests/core/testing/errors.h"

namespace lodestar {
namespace {

// A file in memory whose calls fail on request.
class FakeFile final : public DiskFile {
 public:
  struct Faults {
    bool full = false;
    bool no_writes = false;
    bool no_reads = false;
    int64_t writes = 0;  // calls
  };

  explicit FakeFile(Faults* faults) : faults_(*faults) {}

  Status Extend(int64_t bytes) override {
    if (faults_.full) return ResourceExhausted("the disk is full.");
    content_.resize(bytes);
    return Status();
  }
  Status Write(const void* data, int64_t bytes, int64_t offset) override {
    ++faults_.writes;
    if (faults_.no_writes) return DataLoss("a write failed.");
    EXPECT_LE(offset + bytes, static_cast<int64_t>(content_.size()));
    std::memcpy(content_.data() + offset, data, bytes);
    return Status();
  }
  Status Read(Span<const Range> ranges) const override {
    if (faults_.no_reads) return DataLoss("a read failed.");
    for (const Range& range : ranges) {
      EXPECT_LE(range.offset + range.bytes,
                static_cast<int64_t>(content_.size()));
      std::memcpy(range.out, content_.data() + range.offset, range.bytes);
    }
    return Status();
  }

 private:
  Faults& faults_;
  std::vector<char> content_;
};

// A log of records that start with an id, and a model of it.
class Log {
 public:
  explicit Log(int64_t record_bytes)
      : log(record_bytes, std::make_unique<FakeFile>(&faults)) {}

  void Append(int64_t id) {
    const std::string record = RecordOf(id);
    const uint32_t number = log.Append(record.data());
    EXPECT_EQ(numbers.count(number), 0u);
    numbers[number] = id;
  }
  void Remove(uint32_t number) {
    log.Remove(number);
    ASSERT_EQ(numbers.erase(number), 1u);
  }
  void Remove(int64_t count, std::mt19937_64* rng) {
    std::vector<uint32_t> all = Numbers();
    std::shuffle(all.begin(), all.end(), *rng);
    for (int64_t i = 0; i < count; ++i) Remove(all[i]);
  }
  Status Compact() {
    return log.CompactOne([&](uint32_t from, uint32_t to, const char* record) {
      const int64_t id = numbers.at(from);
      EXPECT_EQ(std::string(record, log.record_bytes()), RecordOf(id));
      numbers.erase(from);
      EXPECT_EQ(numbers.count(to), 0u);
      numbers[to] = id;
    });
  }
  std::vector<uint32_t> Numbers() const {
    std::vector<uint32_t> all;
    for (const auto& item : numbers) all.push_back(item.first);
    return all;
  }
  void ExpectContent() const {
    const std::vector<uint32_t> all = Numbers();
    std::vector<char> records(all.size() * log.record_bytes());
    const Status status = log.Read(all, records.data());
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(std::string(records.data() + i * log.record_bytes(),
                            log.record_bytes()),
                RecordOf(numbers.at(all[i])));
    }
    EXPECT_EQ(log.size(), static_cast<int64_t>(all.size()));
  }

  FakeFile::Faults faults;
  RowLog log;
  std::map<uint32_t, int64_t> numbers;  // id by number

 private:
  std::string RecordOf(int64_t id) const {
    std::string record(log.record_bytes(), static_cast<char>(id * 31));
    std::memcpy(record.data(), &id, std::min<size_t>(8, record.size()));
    return record;
  }
};

constexpr int64_t kExtent = int64_t{256} << 10;

TEST(RowLogTest, ReadsRecordsFromMemoryAndFromTheFile) {
  Log log(280);
  ASSERT_TRUE(log.log.Reserve(3000).ok());
  for (int64_t id = 0; id < 3000; ++id) log.Append(id);
  log.ExpectContent();
  EXPECT_EQ(log.faults.writes, 0);
  ASSERT_TRUE(log.log.Flush().ok());
  EXPECT_EQ(log.faults.writes, 3);
  log.ExpectContent();
  ASSERT_TRUE(log.log.Flush().ok());
  EXPECT_EQ(log.faults.writes, 3);
}

TEST(RowLogTest, KeepsOnlyUnwrittenExtentsInMemory) {
  Log log(280);
  for (int64_t id = 0; id < 100000; id += 1000) {
    ASSERT_TRUE(log.log.Reserve(1000).ok());
    for (int64_t i = id; i < id + 1000; ++i) log.Append(i);
    ASSERT_TRUE(log.log.Flush().ok());
    EXPECT_LE(log.log.memory_bytes(), 3 * kExtent);
  }
  EXPECT_LE(log.log.file_bytes(), 100000 * 280 + 3 * kExtent);
  log.ExpectContent();
}

TEST(RowLogTest, RecordsMayBeLargerThanAnExtent) {
  Log log(kExtent + 8);
  for (int64_t id = 0; id < 5; ++id) {
    ASSERT_TRUE(log.log.Reserve(1).ok());
    log.Append(id);
    if (id % 2 == 0) {
      ASSERT_TRUE(log.log.Flush().ok());
    }
  }
  log.ExpectContent();
  log.Remove(log.Numbers()[1]);
  ASSERT_TRUE(log.log.Reserve(1).ok());
  log.Append(9);
  log.ExpectContent();
}

TEST(RowLogTest, ReusesExtentsWithoutRecords) {
  Log log(1024);
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(log.log.Reserve(1000).ok());
    for (int64_t id = 0; id < 1000; ++id) log.Append(id);
    // Every other round removes records that were never written.
    if (round % 2 == 0) {
      ASSERT_TRUE(log.log.Flush().ok());
    }
    log.ExpectContent();
    for (uint32_t number : log.Numbers()) log.Remove(number);
    ASSERT_TRUE(log.log.Flush().ok());
  }
  EXPECT_EQ(log.log.size(), 0);
  EXPECT_LE(log.log.file_bytes(), 1000 * 1024 + 2 * kExtent);
  EXPECT_LE(log.log.memory_bytes(), 6 * kExtent);
}

TEST(RowLogTest, CompactionBoundsTheFile) {
  Log log(512);
  std::mt19937_64 rng(1);
  int64_t next = 0;
  const auto add = [&](int64_t count) {
    ASSERT_TRUE(log.log.Reserve(count).ok());
    for (int64_t i = 0; i < count; ++i) log.Append(next++);
    ASSERT_TRUE(log.log.Flush().ok());
  };
  add(20000);
  for (int round = 0; round < 200; ++round) {
    log.Remove(500, &rng);
    add(500);
    for (int moves = 0; log.log.wants_compaction(); ++moves) {
      ASSERT_LT(moves, 200);
      ASSERT_TRUE(log.Compact().ok());
      ASSERT_TRUE(log.log.Flush().ok());
    }
  }
  log.ExpectContent();
  EXPECT_EQ(log.log.size(), 20000);
  EXPECT_LE(log.log.file_bytes(), 20000 * 512 * 1.6 + 6 * kExtent);
}

TEST(RowLogTest, AFullDiskKeepsAllRecords) {
  Log log(4096);
  ASSERT_TRUE(log.log.Reserve(100).ok());
  for (int64_t id = 0; id < 100; ++id) log.Append(id);
  ASSERT_TRUE(log.log.Flush().ok());
  log.faults.full = true;
  ExpectError(log.log.Reserve(1000), StatusCode::kResourceExhausted,
              {"the disk is full."});
  log.ExpectContent();
  log.faults.full = false;
  ASSERT_TRUE(log.log.Reserve(1000).ok());
  for (int64_t id = 0; id < 1000; ++id) log.Append(id);
  log.ExpectContent();
}

TEST(RowLogTest, AFailedWriteIsRepeated) {
  Log log(4096);
  log.faults.no_writes = true;
  ASSERT_TRUE(log.log.Reserve(200).ok());
  for (int64_t id = 0; id < 200; ++id) log.Append(id);
  for (int i = 0; i < 2; ++i) {
    ExpectError(log.log.Flush(), StatusCode::kDataLoss, {"a write failed."});
    log.ExpectContent();
  }
  log.faults.no_writes = false;
  ASSERT_TRUE(log.log.Flush().ok());
  log.ExpectContent();
  EXPECT_LE(log.log.memory_bytes(), 2 * kExtent);
}

TEST(RowLogTest, AFailedReadChangesNothing) {
  Log log(4096);
  ASSERT_TRUE(log.log.Reserve(640).ok());
  for (int64_t id = 0; id < 640; ++id) log.Append(id);
  ASSERT_TRUE(log.log.Flush().ok());
  for (uint32_t number : log.Numbers()) {
    if (number % 2 == 0) log.Remove(number);
  }
  log.faults.no_reads = true;
  std::vector<char> record(4096);
  const uint32_t number = log.Numbers()[0];
  ExpectError(log.log.Read({&number, 1}, record.data()), StatusCode::kDataLoss,
              {"a read failed."});
  ASSERT_TRUE(log.log.wants_compaction());
  const auto before = log.numbers;
  ExpectError(log.Compact(), StatusCode::kDataLoss, {"a read failed."});
  EXPECT_EQ(log.numbers, before);
  log.faults.no_reads = false;
  log.ExpectContent();
  ASSERT_TRUE(log.Compact().ok());
  EXPECT_NE(log.numbers, before);
  log.ExpectContent();
}

TEST(RowLogTest, FailedAllocationsChangeNothing) {
  for (int64_t fails = 0;; ++fails) {
    Log log(1024);
    ASSERT_TRUE(log.log.Reserve(300).ok());
    for (int64_t id = 0; id < 300; ++id) log.Append(id);
    ASSERT_TRUE(log.log.Flush().ok());
    for (uint32_t number = 0; number < 200; ++number) log.Remove(number);
    const auto before = log.numbers;
    Status status;
    bool failed = false;
    {
      const FailAllocation fail(fails);
      status = log.log.Reserve(2000);
      if (status.ok()) {
        status = log.log.CompactOne([](uint32_t, uint32_t, const char*) {});
      }
      failed = fail.failed();
    }
    if (!failed) break;
    ExpectError(status, StatusCode::kResourceExhausted, {"out of memory"});
    EXPECT_EQ(log.numbers, before);
    log.ExpectContent();
    ASSERT_TRUE(log.log.Reserve(2000).ok());
    log.ExpectContent();
  }
}

// Random calls and faults.
TEST(RowLogTest, EqualsItsModel) {
  for (int64_t record_bytes : {1, 24, 1000, 70000}) {
    Log log(record_bytes);
    std::mt19937_64 rng(record_bytes);
    const int64_t most = std::max<int64_t>(4, 3 * kExtent / record_bytes);
    for (int call = 0; call < 300; ++call) {
      log.faults.full = rng() % 8 == 0;
      log.faults.no_writes = rng() % 8 == 0;
      log.faults.no_reads = rng() % 8 == 0;
      const int64_t count =
          rng() % std::max<int64_t>(2, std::min<int64_t>(most, 2000));
      switch (rng() % 4) {
        case 0:
          if (log.log.Reserve(count).ok()) {
            for (int64_t i = 0; i < count; ++i) {
              log.Append(static_cast<int64_t>(rng()));
            }
          }
          break;
        case 1:
          log.Remove(std::min<int64_t>(count, log.log.size()), &rng);
          break;
        case 2:
          EXPECT_EQ(log.log.Flush().ok() || log.faults.no_writes, true);
          break;
        default:
          (void)log.Compact();
      }
      if (call % 10 == 0) {
        log.faults.no_reads = false;
        log.ExpectContent();
      }
    }
    log.faults.no_reads = false;
    log.ExpectContent();
  }
}

}  // namespace
}  // namespace lodestar
