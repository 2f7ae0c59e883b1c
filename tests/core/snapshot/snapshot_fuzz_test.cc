// Mutated snapshot files. A file with wrong checksums is rejected with an error
// that contains the file and the byte. A file with recomputed checksums is
// rejected or read, and never read out of bounds (run under --config=asan).

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/snapshot/golden_snapshots.h"
#include "tests/core/snapshot/snapshot_files.h"
#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/snapshot/snapshot_compact.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {
namespace {

constexpr int kInputsOfOneCase = 1500;

// Returns whether it changed anything.
bool Mutate(std::mt19937* random, std::string* bytes) {
  const auto below = [random](size_t n) { return (*random)() % n; };
  if (bytes->empty()) return false;
  const std::string before = *bytes;
  const size_t at = below(bytes->size());
  static const uint64_t kWords[] = {0,
                                    1,
                                    2,
                                    8,
                                    0x7f,
                                    0x10000,
                                    0x7fffffff,
                                    0xffffffff,
                                    0x4000000,
                                    0x4000001,
                                    uint64_t{1} << 60,
                                    uint64_t{1} << 61,
                                    INT64_MAX,
                                    ~uint64_t{0}};
  switch (below(7)) {
    case 0:
      (*bytes)[at] = static_cast<char>((*random)());
      break;
    case 1:
      (*bytes)[at] ^= 1 << below(8);
      break;
    case 2:
      bytes->resize(at);
      break;
    case 3:
      bytes->erase(at / 8 * 8, 8 * (1 + below(8)));
      break;
    case 4:
      bytes->insert(at, bytes->substr(below(bytes->size()), 1 + below(64)));
      break;
    case 5:
      bytes->insert(at / 8 * 8, 8 * (1 + below(8)), '\0');
      break;
    default: {
      const size_t width = below(2) == 0 ? 4 : 8;
      const size_t aligned = at / width * width;
      const uint64_t word = kWords[below(std::size(kWords))];
      std::memcpy(bytes->data() + aligned, &word,
                  std::min(width, bytes->size() - aligned));
    }
  }
  return *bytes != before;
}

// Recomputes all checksums that can be reached from block to block.
void ResealAll(std::string* bytes) {
  const int64_t size = static_cast<int64_t>(bytes->size());
  if (size < 16) return;
  SetNumber(bytes, 12, Crc32c(bytes->data(), 12));
  for (int64_t offset = 16; offset + 32 <= size;) {
    Reseal(bytes, offset);
    const uint64_t payload = NumberAt<uint64_t>(*bytes, offset + 16);
    if (payload > static_cast<uint64_t>(size)) return;
    offset += 32 + static_cast<int64_t>(payload + 7) / 8 * 8;
  }
}

void ExpectNamed(const Status& status, const std::string& path) {
  ASSERT_NE(status.message().find(path), std::string::npos) << status.message();
  if (status.code() == StatusCode::kUnimplemented) return;
  ASSERT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
  ASSERT_NE(status.message().find("byte "), std::string::npos)
      << status.message();
}

// Every way of reading terminates, whatever the file contains.
void ReadInEveryWay(const std::string& path, std::mt19937* random, bool valid) {
  std::unique_ptr<SnapshotFileReader> file;
  if (!SnapshotFileReader::Open(path, &file).ok()) return;
  SnapshotTable table;
  const bool is_table = ReadTable(*file, &table).ok();
  SnapshotFileReader::Block block;
  for (int i = 0; i < 8; ++i) {
    const int64_t offset = 8 * static_cast<int64_t>((*random)() % 64);
    if (!file->ReadBlock(offset, &block).ok()) continue;
    ASSERT_EQ(static_cast<int64_t>(block.payload.size()), block.bytes);
    ASSERT_LE(block.next, file->size());
    if (is_table) static_cast<void>(CheckRecords(*file, table, block));
  }
  if (!is_table) return;
  const std::string out = NewPath("out");
  SnapshotFileSummary compacted;
  const std::vector<ListedFile> golden_chain = {
      std::string(kGoldenFolder) + "whole.snapshot", path};
  const Status status = CompactChain(golden_chain, out, kTestLabel, &compacted);
  if (status.ok()) {
    ASSERT_TRUE(valid);
    SnapshotFileSummary found;
    const Status verified = VerifySnapshotFile(out, nullptr, &found);
    ASSERT_TRUE(verified.ok()) << verified.message();
    ASSERT_EQ(found.crc, compacted.crc);
  }
}

TEST(SnapshotFuzzTest, SurvivesMutatedFiles) {
  const std::string golden = kGoldenFolder;
  for (const std::string& source :
       {golden + "small.snapshot", golden + "whole.snapshot",
        golden + "delta.snapshot", golden + "blobs.snapshot"}) {
    SCOPED_TRACE(source);
    const std::string good = ReadAll(source);
    ASSERT_GT(good.size(), 100u);
    const std::string path = NewPath("input");
    std::mt19937 random(static_cast<uint32_t>(good.size()));
    int accepted = 0;
    int resealed = 0;
    std::set<std::string> kinds_of_error;
    for (int i = 0; i < kInputsOfOneCase; ++i) {
      std::string bytes = good;
      bool changed = false;
      for (int e = 1 + random() % 3; e > 0; --e) {
        changed |= Mutate(&random, &bytes);
      }
      changed &= bytes != good;
      const bool reseal = random() % 2 == 0;
      if (reseal) ResealAll(&bytes);
      resealed += reseal;
      WriteAll(path, bytes);
      SnapshotFileSummary summary;
      const Status status = VerifySnapshotFile(path, nullptr, &summary);
      if (status.ok()) {
        ASSERT_TRUE(reseal || !changed) << "input " << i;
        ASSERT_EQ(summary.crc, Crc32c(bytes.data(), bytes.size()));
        accepted += reseal;
      } else {
        ExpectNamed(status, path);
        std::string kind;
        for (const char letter : status.message().substr(path.size())) {
          if (letter < '0' || letter > '9') kind += letter;
        }
        kinds_of_error.insert(kind);
      }
      ReadInEveryWay(path, &random, status.ok());
      if (HasFatalFailure()) FAIL() << "input " << i << " is kept as " << path;
    }
    // Neither all rejected nor all accepted, and for many reasons.
    EXPECT_GT(accepted, resealed / 100);
    EXPECT_LT(accepted, resealed * 9 / 10);
    EXPECT_GT(kinds_of_error.size(), 12u);
  }
}

}  // namespace
}  // namespace lodestar
