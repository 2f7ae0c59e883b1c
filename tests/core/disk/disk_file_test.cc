#include "tf_ops/core/disk/disk_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/testing/errors.h"

namespace lodestar {
namespace {

// An empty folder.
std::string Folder() {
  std::string path = testing::TempDir() + "/disk-XXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return std::filesystem::canonical(path);
}

std::vector<std::string> EntriesOf(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const directory = opendir(folder.c_str());
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(directory);
  return names;
}

// The descriptor of a file without a name in `folder`.
int DescriptorIn(const std::string& folder) {
  for (int file = 0; file < 1024; ++file) {
    char path[4096] = {};
    const std::string link = StrCat("/proc/self/fd/", file);
    if (readlink(link.c_str(), path, sizeof(path) - 1) < 0) continue;
    if (std::string(path).rfind(folder + "/", 0) == 0) return file;
  }
  return -1;
}

std::unique_ptr<DiskFile> Create(const std::string& folder) {
  std::unique_ptr<DiskFile> file;
  const Status status = DiskFile::Create(folder, &file);
  EXPECT_TRUE(status.ok()) << status.message();
  return file;
}

// A file of `count` numbers.
std::unique_ptr<DiskFile> FileOf(const std::string& folder, int64_t count) {
  auto file = Create(folder);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(i);
  EXPECT_TRUE(file->Extend(count * 8).ok());
  EXPECT_TRUE(file->Write(numbers.data(), count * 8, 0).ok());
  return file;
}

std::vector<int64_t> ReadNumbers(const DiskFile& file,
                                 const std::vector<int64_t>& places) {
  std::vector<int64_t> numbers(places.size(), -1);
  std::vector<DiskFile::Range> ranges;
  for (size_t i = 0; i < places.size(); ++i) {
    ranges.push_back({places[i] * 8, 8, &numbers[i]});
  }
  const Status status = file.Read(ranges);
  EXPECT_TRUE(status.ok()) << status.message();
  return numbers;
}

TEST(DiskFileTest, HasNoName) {
  const std::string folder = Folder();
  auto file = FileOf(folder, 10);
  EXPECT_EQ(EntriesOf(folder).size(), 0u);
  auto other = Create(folder);
  EXPECT_TRUE(other->Extend(80).ok());
  EXPECT_EQ(ReadNumbers(*file, {3}), std::vector<int64_t>{3});
  EXPECT_EQ(ReadNumbers(*other, {3}), std::vector<int64_t>{0});
  file.reset();
  EXPECT_EQ(EntriesOf(folder).size(), 0u);
}

TEST(DiskFileTest, OutlivesItsFolder) {
  const std::string folder = Folder();
  const auto file = FileOf(folder, 10);
  ASSERT_EQ(rmdir(folder.c_str()), 0);
  EXPECT_EQ(ReadNumbers(*file, {9, 0}), (std::vector<int64_t>{9, 0}));
}

TEST(DiskFileTest, ReadsRangesInAnyOrder) {
  const auto file = FileOf(Folder(), 1000);
  EXPECT_EQ(ReadNumbers(*file, {999, 0, 500, 0, 1}),
            (std::vector<int64_t>{999, 0, 500, 0, 1}));
  EXPECT_EQ(ReadNumbers(*file, {}), std::vector<int64_t>());
}

TEST(DiskFileTest, ReadsWhatTheSystemHasDropped) {
  const std::string folder = Folder();
  constexpr int64_t kCount = 1 << 20;
  const auto file = FileOf(folder, kCount);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < 1000; ++i) places.push_back(i * 7919 % kCount);
  for (int round = 0; round < 3; ++round) {
    const int descriptor = DescriptorIn(folder);
    ASSERT_GE(descriptor, 0);
    ASSERT_EQ(fdatasync(descriptor), 0);
    ASSERT_EQ(posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED), 0);
    EXPECT_EQ(ReadNumbers(*file, places), places);
  }
}

TEST(DiskFileTest, ReservesSpace) {
  const std::string folder = Folder();
  const auto file = Create(folder);
  ASSERT_TRUE(file->Extend(1 << 20).ok());
  struct stat before = {};
  ASSERT_EQ(fstat(DescriptorIn(folder), &before), 0);
  EXPECT_EQ(before.st_size, 1 << 20);
  EXPECT_GE(before.st_blocks * 512, 1 << 20);
  // It never shrinks.
  ASSERT_TRUE(file->Extend(1000).ok());
  struct stat after = {};
  ASSERT_EQ(fstat(DescriptorIn(folder), &after), 0);
  EXPECT_EQ(after.st_size, 1 << 20);
}

TEST(DiskFileTest, ReportsALimitOnSpace) {
  const std::string folder = Folder();
  const auto file = FileOf(folder, 10);
  signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {1 << 20, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const Status status = file->Extend(2 << 20);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
  ExpectError(status, StatusCode::kResourceExhausted,
              {"cannot reserve space in '" + folder + "'", "File too large"});
  EXPECT_EQ(ReadNumbers(*file, {9}), std::vector<int64_t>{9});
  EXPECT_TRUE(file->Extend(2 << 20).ok());
}

TEST(DiskFileTest, ReportsTheEndOfTheFile) {
  const std::string folder = Folder();
  const auto file = FileOf(folder, 10);
  char out[16];
  const DiskFile::Range range = {72, 16, out};
  ExpectError(file->Read({&range, 1}), StatusCode::kDataLoss,
              {folder, "ends before byte 88"});
}

TEST(DiskFileTest, ReportsAFolderThatCannotHoldFiles) {
  std::unique_ptr<DiskFile> file;
  const std::string folder = Folder();
  ExpectError(DiskFile::Create(folder + "/none", &file), StatusCode::kNotFound,
              {"cannot create a file in '" + folder + "/none'"});
  ExpectError(DiskFile::Create("/dev/null", &file), StatusCode::kNotFound,
              {"cannot create a file in '/dev/null'", "Not a directory"});
  EXPECT_EQ(file, nullptr);
}

}  // namespace
}  // namespace lodestar
