#include "tf_ops/core/serving/snapshot_follower.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/core/serving/follower_test.h"

namespace {
// Reads of files of this name fail; empty: none.
std::string failing_file;
}  // namespace

// Replaces the system's functions in this program.
extern "C" ssize_t pread64(int file, void* out, size_t count, off64_t offset) {
  if (!failing_file.empty()) {
    std::error_code ignored;
    const auto path = std::filesystem::read_symlink(
        "/proc/self/fd/" + std::to_string(file), ignored);
    if (path.filename() == failing_file) {
      errno = EIO;
      return -1;
    }
  }
  return syscall(SYS_pread64, file, out, count, offset);
}
extern "C" ssize_t pread(int file, void* out, size_t count, off_t offset) {
  return pread64(file, out, count, offset);
}

namespace lodestar {
namespace {

class SnapshotFollowerTest : public FollowerTest {
 protected:
  SnapshotFollowerTest() : FollowerTest(TableCopies::kTwo) {}
};

TEST_F(SnapshotFollowerTest, WithoutAVersionThereIsNoContent) {
  EXPECT_EQ(Refresh(), 0);
  std::filesystem::create_directories(maker_.path());
  EXPECT_EQ(Refresh(), 0);
  const FollowerStats stats = follower_.stats();
  EXPECT_EQ(stats.version, 0);
  EXPECT_EQ(stats.failures, 0);
  EXPECT_EQ(stats.last_error, "");
}

TEST_F(SnapshotFollowerTest, ReadsOnlyChangesOnceBothCopiesExist) {
  maker_.Add(Version(1).Rows({{1, 10}, {2, 20}, {3, 30}}));
  EXPECT_EQ(Refresh(), 1);
  EXPECT_EQ(Found({1, 2, 3, 4}), (std::vector<float>{10, 20, 30, 0}));
  maker_.Add(Version(2).Parent(1).Rows({{2, 21}}).Removed({1}));
  EXPECT_EQ(Refresh(), 2);
  EXPECT_EQ(Found({1, 2, 3, 4}), (std::vector<float>{0, 21, 30, 0}));
  EXPECT_EQ(follower_.stats().full_updates, 2);
  maker_.Add(Version(3).Parent(2).Rows({{1, 11}, {4, 41}}));
  maker_.Add(Version(4).Parent(3).Rows({{4, 42}}).Removed({3}));
  EXPECT_EQ(Refresh(), 4);
  EXPECT_EQ(Found({1, 2, 3, 4}), (std::vector<float>{11, 21, 0, 42}));
  EXPECT_EQ(Weight(*follower_.current()), 4);
  maker_.Add(Version(5).Parent(4).Rows({{5, 55}}));
  EXPECT_EQ(Refresh(), 5);
  EXPECT_EQ(Found({1, 3, 5}), (std::vector<float>{11, 0, 55}));
  EXPECT_EQ(Refresh(), 5);
  const FollowerStats stats = follower_.stats();
  EXPECT_EQ(stats.version, 5);
  EXPECT_EQ(stats.step, 50);
  EXPECT_EQ(stats.time, "now");
  EXPECT_EQ(stats.updates, 4);
  EXPECT_EQ(stats.full_updates, 2);
  EXPECT_EQ(stats.failures, 0);
  EXPECT_GE(stats.seconds_since_update, 0);
  EXPECT_GT(stats.last_update_seconds, 0);
  EXPECT_EQ(stats.polls, 5);
  EXPECT_EQ(stats.newest_version, 5);
  EXPECT_EQ(stats.lag_versions, 0);
  EXPECT_EQ(stats.metadata, "{\"x\": 1e400}");
  // Both copies are read, and then changed: one by the versions 2 to 4, the
  // other one by 3 to 5.
  EXPECT_EQ(stats.rows_written, 3 + 2 + 4 + 4);
  EXPECT_EQ(stats.rows_removed, 2 + 1);
  EXPECT_EQ(stats.idle_bytes.size(), 1);
  EXPECT_GT(stats.idle_bytes[0], 0);
}

TEST_F(SnapshotFollowerTest, RowsAreStoredAsThoseOfTheModel) {
  model_ = Model(RowStorage::kBFloat16);
  maker_.Add(Version(1).Rows({{1, 10}, {2, 257}}));
  EXPECT_EQ(Refresh(), 1);
  EXPECT_EQ(Found({1, 2}), (std::vector<float>{10, 256}));
  maker_.Add(Version(2).Parent(1).Rows({{1, 513}}));
  EXPECT_EQ(Refresh(), 2);
  maker_.Add(Version(3).Parent(2).Rows({{3, 1023}}));
  EXPECT_EQ(Refresh(), 3);
  EXPECT_EQ(Found({1, 2, 3}), (std::vector<float>{512, 256, 1024}));
  EXPECT_EQ(follower_.stats().full_updates, 2);
  EXPECT_EQ(follower_.current()->tables[0]->policies().storage,
            RowStorage::kBFloat16);
}

TEST_F(SnapshotFollowerTest, ContentInUseDoesNotChange) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  Refresh();
  const auto first = follower_.current();
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  Refresh();
  // Only the table is in use.
  std::shared_ptr<Table> second = follower_.current()->tables[0];
  maker_.Add(Version(3).Parent(2).Rows({{1, 30}}));
  EXPECT_EQ(Refresh(), 3);
  maker_.Add(Version(4).Parent(3).Rows({{1, 40}}));
  EXPECT_EQ(Refresh(), 4);
  EXPECT_EQ(follower_.stats().full_updates, 4);
  EXPECT_EQ(Rows(*first, {1}), std::vector<float>{10});
  EXPECT_EQ(Weight(*first), 1);
  FollowedContent held;
  held.tables = {second};
  EXPECT_EQ(Rows(held, {1}), std::vector<float>{20});
  EXPECT_EQ(Found({1}), std::vector<float>{40});
}

TEST_F(SnapshotFollowerTest, AllCopiesCountTogether) {
  int64_t hits = 0;
  for (int64_t version = 1; version <= 4; ++version) {
    MadeVersion made = Version(version).Rows({{1, 10}});
    maker_.Add(version == 1 ? made : made.Parent(version - 1));
    Refresh();
    Found({1, 1});
    hits += 2;
    EmbeddingStats stats;
    const auto content = follower_.current();
    ASSERT_TRUE(content->tables[0]->ReadStats(&stats, Execution()).ok());
    EXPECT_EQ(stats.count(Event::kReadHits), hits);
  }
}

TEST_F(SnapshotFollowerTest, SkipsADamagedVersionUntilItChanges) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  maker_.Add(Version(3).Parent(2).Rows({{1, 30}}));
  const std::string damaged = maker_.FilePath(3, "table-00000");
  FlipByte(damaged);
  EXPECT_EQ(Refresh(), 2);
  EXPECT_EQ(Found({1}), std::vector<float>{20});
  EXPECT_EQ(follower_.stats().failures, 1);
  ExpectError(damaged);
  // It is not read again.
  EXPECT_EQ(Refresh(), 2);
  EXPECT_EQ(follower_.stats().failures, 1);
  ExpectError(damaged);
  FlipByte(damaged);
  EXPECT_EQ(Refresh(), 3);
  EXPECT_EQ(Found({1}), std::vector<float>{30});
  ExpectError("");
  EXPECT_EQ(follower_.stats().failures, 1);
}

TEST_F(SnapshotFollowerTest, ADamagedDeltaLeavesTheServedCopy) {
  for (int64_t number = 1; number <= 4; ++number) {
    MadeVersion made = Version(number);
    made.Rows({{1, 10.0f * number}});
    maker_.Add(number == 1 ? made : made.Parent(number - 1));
    if (number == 4) FlipByte(maker_.FilePath(4, "table-00000"));
    Refresh();
  }
  EXPECT_EQ(Found({1}), std::vector<float>{30});
  EXPECT_EQ(follower_.stats().failures, 1);
  // A later version needs the damaged one.
  maker_.Add(Version(5).Parent(4).Rows({{1, 50}}));
  EXPECT_EQ(Refresh(), 3);
  EXPECT_EQ(follower_.stats().failures, 2);
  maker_.Add(Version(6).Rows({{1, 60}}));
  EXPECT_EQ(Refresh(), 6);
  EXPECT_EQ(Found({1}), std::vector<float>{60});
  ExpectError("");
}

TEST_F(SnapshotFollowerTest, ARepairedParentIsReadAgain) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  FlipByte(maker_.FilePath(1, "table-00000"));
  EXPECT_EQ(Refresh(), 0);
  EXPECT_EQ(follower_.stats().failures, 2);
  FlipByte(maker_.FilePath(1, "table-00000"));
  EXPECT_EQ(Refresh(), 2);
}

TEST_F(SnapshotFollowerTest, AMissingManifestAndALaterFormatAreSkipped) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  std::filesystem::remove(maker_.FilePath(2, "MANIFEST"));
  EXPECT_EQ(Refresh(), 1);
  ExpectError("");
  maker_.WriteManifest(2, "{\"format\": 9}");
  EXPECT_EQ(Refresh(), 1);
  ExpectError("has format 9");
}

TEST_F(SnapshotFollowerTest, RefusesVersionsOfOtherModels) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  Refresh();
  int64_t failures = 0;
  const auto expect = [&](const MadeVersion& made, const std::string& message) {
    maker_.Add(made);
    EXPECT_EQ(Refresh(), 1);
    ExpectError(message);
    EXPECT_EQ(follower_.stats().failures, ++failures);
  };
  expect(Version(2).Dim(3).Rows({{1, 20}}),
         "the table 't' has dim 3 and dtype float32, but dim 2 and dtype "
         "float32 in the model");
  expect(MadeVersion(2).Weights({{"other", {1}}}),
         "has no weight 'dense/bias', which the model reads");
  expect(MadeVersion(2).Weights({{"dense/bias", {1, 2}}}),
         "the weight 'dense/bias' is float32 [2], but float32 [1] in the "
         "model");
  model_.tables[0].name = "u";
  expect(Version(2), "has no table 'u', which the model reads");
  model_.tables[0].name = "t";
  model_.schema = {{"the column 'a'", "kind='hash'"}, {"the column 'b'", "x"}};
  expect(Version(2).Schema("# the column 'a'\tkind='int'\nlabel: [click]\n"),
         "another schema: the column 'a' is kind='int' in the snapshot, "
         "kind='hash' in the model");
  EXPECT_EQ(follower_.stats().model_error, follower_.stats().last_error);
  // Columns of one side, and other comments, do not count.
  maker_.Add(Version(2).Schema(
      "# the column 'a'\tkind='hash'\n# the column 'c'\ty\n# no tab\n"));
  EXPECT_EQ(Refresh(), 2);
  // A version without a schema fits.
  maker_.Add(Version(3));
  EXPECT_EQ(Refresh(), 3);
}

TEST_F(SnapshotFollowerTest, WeightsMatchWithoutTheNumbersOfKeras) {
  model_.weights = {{"dense_3/kernel", "float32", {1}},
                    {"dense_4/kernel", "float32", {1}},
                    {"x_y/kernel", "float32", {1}}};
  maker_.Add(MadeVersion(1).Weights({{"dense/kernel", {1}},
                                     {"dense_1/kernel", {2}},
                                     {"x_y/kernel", {3}},
                                     {"other/kernel", {4}}}));
  EXPECT_EQ(Refresh(), 1);
  const auto content = follower_.current();
  ASSERT_NE(content, nullptr);
  ASSERT_EQ(content->weights.size(), 3);
  for (size_t w = 0; w < 3; ++w) {
    float value = 0;
    std::memcpy(&value, content->weights[w].data(), sizeof(value));
    EXPECT_EQ(value, w + 1.0f);
  }
}

TEST_F(SnapshotFollowerTest, IdTablesAreFollowed) {
  model_.id_tables = {{"a", "string"}, {"b", "int64"}, {"c", "int64"}};
  const std::vector<int64_t> ids = {7, 8};
  maker_.Add(Version(1)
                 .Array("id_table/a/keys", std::string("xyy"))
                 .Array("id_table/a/lengths", std::vector<int64_t>{1, 2})
                 .Array("id_table/a/ids", ids)
                 .Array("id_table/b/keys", std::vector<int64_t>{3, 4})
                 .Array("id_table/b/ids", ids));
  EXPECT_EQ(Refresh(), 1);
  const auto first = follower_.current();
  ASSERT_EQ(first->id_tables.size(), 3);
  EXPECT_EQ(first->id_tables[0]->keys.bytes, "xyy");
  EXPECT_EQ(first->id_tables[0]->lengths.shape, std::vector<int64_t>{2});
  EXPECT_EQ(first->id_tables[1]->ids.bytes.size(), 16);
  EXPECT_EQ(first->id_tables[2], nullptr);
  // Equal content is the same object.
  maker_.Add(Version(2)
                 .Array("id_table/a/keys", std::string("xyy"))
                 .Array("id_table/a/lengths", std::vector<int64_t>{1, 2})
                 .Array("id_table/a/ids", std::vector<int64_t>{8, 7})
                 .Array("id_table/b/keys", std::vector<int64_t>{3, 4})
                 .Array("id_table/b/ids", ids));
  EXPECT_EQ(Refresh(), 2);
  const auto second = follower_.current();
  EXPECT_NE(second->id_tables[0], first->id_tables[0]);
  EXPECT_EQ(second->id_tables[1], first->id_tables[1]);
}

TEST_F(SnapshotFollowerTest, RefusesOtherIdTables) {
  model_.id_tables = {{"a", "string"}};
  const auto expect = [&](const MadeVersion& made, const std::string& message) {
    maker_.Add(made);
    EXPECT_EQ(Refresh(), 0);
    ExpectError(message);
  };
  const auto version = [](const std::string& keys,
                          const std::vector<int64_t>& lengths,
                          const std::vector<int64_t>& ids) {
    return Version(1)
        .Array("id_table/a/keys", keys)
        .Array("id_table/a/lengths", lengths)
        .Array("id_table/a/ids", ids);
  };
  expect(version("xy", {1, 1}, {1}), "has 2 keys, but 1 ids");
  expect(version("xy", {1, 2}, {1, 2}), "has keys of 2 bytes");
  expect(version("xyz", {1, 1}, {1, 2}), "has keys of 3 bytes");
  expect(version("xy", {3, -1}, {1, 2}), "has keys of 2 bytes");
  expect(version("xy", {1, 1}, {1, 2})
             .Array("id_table/a/ids", std::vector<float>{1, 2}),
         "has ids of float32 instead of int64");
  expect(Version(1)
             .Array("id_table/a/keys", std::vector<int64_t>{3})
             .Array("id_table/a/ids", std::vector<int64_t>{3}),
         "has int64 keys, but string keys in the model");
  expect(Version(1).Array("id_table/a/vocabulary", std::vector<int64_t>{3}),
         "is not the content of an IdTable");
  maker_.Add(version("xy", {1, 1}, {1, 2}));
  EXPECT_EQ(Refresh(), 1);
}

TEST_F(SnapshotFollowerTest, VocabulariesMustBeTheModels) {
  SavedArray vocabulary;
  vocabulary.bytes = "xyy";
  SavedArray lengths;
  lengths.bytes = std::string("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16);
  EXPECT_EQ(DigestOf(SavedArray()), "0:0");
  model_.vocabularies = {
      {"words", StrCat(DigestOf(vocabulary), " ", DigestOf(lengths))}};
  const auto version = [](const std::string& keys,
                          const std::vector<int64_t>& lengths) {
    return Version(1)
        .Array("id_table/words/vocabulary", keys)
        .Array("id_table/words/lengths", lengths);
  };
  for (const MadeVersion& made :
       {version("xyz", {1, 2}), version("xyy", {2, 1})}) {
    maker_.Add(made);
    EXPECT_EQ(Refresh(), 0);
    ExpectError("the IdLookup 'words' has another vocabulary than the model");
  }
  maker_.Add(version("xyy", {1, 2}));
  EXPECT_EQ(Refresh(), 1);
  maker_.Add(Version(2));
  EXPECT_EQ(Refresh(), 2);
}

TEST_F(SnapshotFollowerTest, CompactionChangesNothing) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  Refresh();
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  Refresh();
  const auto before = follower_.current();
  maker_.Add(Version(3).SameAs(2).Rows({{1, 20}}));
  EXPECT_EQ(Refresh(), 3);
  EXPECT_EQ(follower_.current()->tables, before->tables);
  EXPECT_EQ(follower_.stats().updates, 2);
  std::filesystem::remove_all(maker_.VersionPath(1));
  std::filesystem::remove_all(maker_.VersionPath(2));
  maker_.Add(Version(4).Parent(3).Rows({{2, 40}}));
  EXPECT_EQ(Refresh(), 4);
  EXPECT_EQ(Found({1, 2}), (std::vector<float>{20, 40}));
}

TEST_F(SnapshotFollowerTest, AReplacedFolderIsServed) {
  maker_.Add(Version(5).Rows({{1, 50}}));
  EXPECT_EQ(Refresh(), 5);
  std::filesystem::remove_all(maker_.path());
  EXPECT_EQ(Refresh(), 5);
  maker_.Add(Version(1).History('c').Rows({{1, 10}}));
  EXPECT_EQ(Refresh(), 1);
  EXPECT_EQ(Found({1}), std::vector<float>{10});
  // The same number and content elsewhere.
  maker_.Add(Version(1).History('d').Rows({{1, 11}}));
  EXPECT_EQ(Refresh(), 1);
  EXPECT_EQ(Found({1}), std::vector<float>{11});
  // An older version is served only if all newer ones were removed.
  maker_.Add(Version(3).History('d').Rows({{1, 30}}));
  EXPECT_EQ(Refresh(), 3);
  maker_.Add(Version(5).Dim(3));
  std::filesystem::remove_all(maker_.VersionPath(3));
  EXPECT_EQ(Refresh(), 3);
  std::filesystem::remove_all(maker_.VersionPath(5));
  EXPECT_EQ(Refresh(), 1);
  EXPECT_EQ(Found({1}), std::vector<float>{11});
}

// Versions 3 and 4 are removed, and training resumes from 2.
TEST_F(SnapshotFollowerTest, ASecondHistoryWithTheSameNumbersIsServed) {
  maker_.Add(Version(1).Rows({{1, 1}}));
  for (int64_t number = 2; number <= 4; ++number) {
    maker_.Add(Version(number)
                   .Parent(number - 1)
                   .Rows({{number, static_cast<float>(number)}}));
    EXPECT_EQ(Refresh(), number);
  }
  std::filesystem::remove_all(maker_.VersionPath(3));
  std::filesystem::remove_all(maker_.VersionPath(4));
  maker_.Add(Version(3).History('b').Parent(2).Rows({{30, 30}}));
  maker_.Add(Version(4).History('b').Parent(3, 'b').Rows({{40, 40}}));
  EXPECT_EQ(Refresh(), 4);
  const std::vector<int64_t> ids = {1, 2, 3, 4, 30, 40, 50};
  EXPECT_EQ(Found(ids), (std::vector<float>{1, 2, 0, 0, 30, 40, 0}));
  maker_.Add(Version(5).History('b').Parent(4, 'b').Rows({{50, 50}}));
  EXPECT_EQ(Refresh(), 5);
  EXPECT_EQ(Found(ids), (std::vector<float>{1, 2, 0, 0, 30, 40, 50}));
  ExpectError("");
}

// The new history passed the served version before the follower looked.
TEST_F(SnapshotFollowerTest, ALongerSecondHistoryIsReadFromItsFullVersion) {
  maker_.Add(Version(1).Rows({{1, 1}}));
  maker_.Add(Version(2).Parent(1).Rows({{2, 2}}));
  EXPECT_EQ(Refresh(), 2);
  maker_.Add(Version(3).Parent(2).Rows({{3, 3}}));
  EXPECT_EQ(Refresh(), 3);
  std::filesystem::remove_all(maker_.VersionPath(3));
  maker_.Add(Version(3).History('b').Parent(2).Rows({{30, 30}}));
  maker_.Add(Version(4).History('b').Parent(3, 'b').Rows({{40, 40}}));
  EXPECT_EQ(Refresh(), 4);
  EXPECT_EQ(Found({1, 2, 3, 30, 40}), (std::vector<float>{1, 2, 0, 30, 40}));
}

TEST_F(SnapshotFollowerTest, AVersionThatCannotBeInstalledIsTriedAgain) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  EXPECT_EQ(Refresh(), 1);
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  install_ = [](const FollowedContent&) {
    return ResourceExhausted("no memory for handles");
  };
  EXPECT_EQ(Refresh(), 1);
  EXPECT_EQ(Found({1}), std::vector<float>{10});
  FollowerStats stats = follower_.stats();
  EXPECT_EQ(stats.version, 1);
  EXPECT_EQ(stats.updates, 1);
  EXPECT_EQ(stats.failures, 1);
  ExpectError("no memory for handles");
  int64_t installed = 0;
  install_ = [&](const FollowedContent& content) {
    installed = content.manifest.id.version;
    return Status();
  };
  EXPECT_EQ(Refresh(), 2);
  EXPECT_EQ(installed, 2);
  EXPECT_EQ(Found({1}), std::vector<float>{20});
  ExpectError("");
}

TEST_F(SnapshotFollowerTest, AFailedReadIsTriedAgain) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  EXPECT_EQ(Refresh(), 1);
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  int64_t failures = 0;
  for (const char* name : {"MANIFEST", "table-00000", "blobs"}) {
    failing_file = name;
    EXPECT_EQ(Refresh(), 1) << name;
    EXPECT_EQ(follower_.stats().failures, ++failures);
    ExpectError("Input/output error");
  }
  failing_file.clear();
  EXPECT_EQ(Refresh(), 2);
  EXPECT_EQ(Found({1}), std::vector<float>{20});
  ExpectError("");
}

TEST_F(SnapshotFollowerTest, FilesMustBeAsListed) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  EXPECT_EQ(Refresh(), 1);
  for (const std::string field : {"crc32c", "rows", "removed"}) {
    for (const bool delta : {false, true}) {
      MadeVersion made = Version(2).Rows({{1, 20}});
      maker_.Add(delta ? made.Parent(1) : made);
      maker_.ChangeManifest(
          2, "\"" + field + "\": ", "\"" + field + "\": 9, \"before\": ");
      EXPECT_EQ(Refresh(), 1) << field << delta;
      ExpectError("in its manifest");
    }
  }
}

TEST_F(SnapshotFollowerTest, AParentThatAppearsIsFound) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  maker_.Add(Version(3).Parent(2).Rows({{1, 30}}));
  std::filesystem::rename(maker_.VersionPath(2), maker_.VersionPath(2) + "x");
  EXPECT_EQ(Refresh(), 1);
  ExpectError("needs version 2, which is missing");
  std::filesystem::rename(maker_.VersionPath(2) + "x", maker_.VersionPath(2));
  EXPECT_EQ(Refresh(), 3);
  ExpectError("");
}

TEST_F(SnapshotFollowerTest, CallsSeeOneVersion) {
  maker_.Add(Version(1).Rows({{1, 1}, {2, 1}}));
  Refresh();
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!done) {
        const auto content = follower_.current();
        const float weight = Weight(*content);
        EXPECT_EQ(Rows(*content, {1, 2}), (std::vector<float>{weight, weight}));
      }
    });
  }
  for (int64_t version = 2; version <= 20; ++version) {
    const float value = static_cast<float>(version);
    maker_.Add(
        Version(version).Parent(version - 1).Rows({{1, value}, {2, value}}));
    EXPECT_EQ(Refresh(), version);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lodestar
