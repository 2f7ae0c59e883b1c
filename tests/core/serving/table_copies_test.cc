#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/serving/follower_test.h"

namespace lodestar {
namespace {

class TwoCopiesTest : public FollowerTest {
 protected:
  TwoCopiesTest() : FollowerTest(TableCopies::kTwo) {}
};

class OneCopyTest : public FollowerTest {
 protected:
  OneCopyTest() : FollowerTest(TableCopies::kOne) {}
};

TEST_F(TwoCopiesTest, CountsTheBytesOfTheFilesThatItReads) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  EXPECT_EQ(Refresh(), 2);
  EXPECT_EQ(follower_.stats().bytes, BytesOf(1, "table-00000") +
                                         BytesOf(2, "table-00000") +
                                         BytesOf(2, "blobs"));
}

TEST_F(TwoCopiesTest, APinnedVersionStays) {
  for (int64_t number = 1; number <= 3; ++number) {
    MadeVersion made = Version(number).Rows({{1, 10.0f * number}});
    maker_.Add(number == 1 ? made : made.Parent(number - 1));
    EXPECT_EQ(Refresh(), number);
  }
  const auto pin = [&](int64_t version) {
    return follower_.Pin(version, model_, nullptr, install_);
  };
  for (const int64_t version : {1, 2, 3, 1}) {
    EXPECT_TRUE(pin(version).ok());
    EXPECT_EQ(Found({1}), std::vector<float>{10.0f * version});
    EXPECT_EQ(Refresh(), version);
  }
  maker_.Add(Version(4).Parent(3).Rows({{1, 40}}));
  EXPECT_EQ(Refresh(), 1);
  FollowerStats stats = follower_.stats();
  EXPECT_TRUE(stats.pinned);
  EXPECT_EQ(stats.newest_version, 4);
  EXPECT_EQ(stats.lag_versions, 3);
  // An error changes nothing.
  const Status missing = pin(9);
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("has no version 9; it has 1, 2, 3, 4"),
            std::string::npos)
      << missing.message();
  FlipByte(maker_.FilePath(2, "table-00000"));
  EXPECT_EQ(pin(2).code(), StatusCode::kDataLoss);
  maker_.Add(Version(5).Dim(3));
  EXPECT_EQ(pin(5).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Refresh(), 1);
  EXPECT_TRUE(follower_.stats().pinned);
  FlipByte(maker_.FilePath(2, "table-00000"));
  follower_.Unpin();
  EXPECT_FALSE(follower_.stats().pinned);
  EXPECT_EQ(Refresh(), 4);
  EXPECT_EQ(Found({1}), std::vector<float>{40});
  ExpectError("dim 3");
  // A failed Pin does not pin.
  EXPECT_EQ(pin(9).code(), StatusCode::kNotFound);
  maker_.Add(Version(5).Parent(4).Rows({{1, 50}}));
  EXPECT_EQ(Refresh(), 5);
}

TEST_F(TwoCopiesTest, PartsOfATableGetTheirIds) {
  const std::shared_ptr<const Table> like = model_.tables[0].like;
  model_.tables = {{"t", like, {0, 2}, nullptr}, {"t", like, {1, 2}, nullptr}};
  std::map<int64_t, float> rows;
  for (int64_t id = 0; id < 50; ++id) rows[id] = 1;
  maker_.Add(Version(1).Rows(rows));
  EXPECT_EQ(Refresh(), 1);
  EXPECT_EQ(follower_.stats().bytes,
            BytesOf(1, "table-00000") + BytesOf(1, "blobs"));
  for (int64_t version = 2; version <= 4; ++version) {
    rows = {{7, 1.0f * version}, {version + 100, 1}};
    maker_.Add(
        Version(version).Parent(version - 1).Rows(rows).Removed({version}));
    EXPECT_EQ(Refresh(), version);
  }
  EXPECT_EQ(follower_.stats().full_updates, 2);
  int64_t total = 0;
  for (uint32_t part = 0; part < 2; ++part) {
    EmbeddingRows found;
    ASSERT_TRUE(follower_.current()
                    ->tables[part]
                    ->Export(/*with_slots=*/false, &found, Execution())
                    .ok());
    total += static_cast<int64_t>(found.ids.size());
    for (const int64_t id : found.ids) {
      EXPECT_TRUE(TablePart({part, 2}).Has(id)) << id;
    }
  }
  EXPECT_EQ(total, 50);
  EXPECT_EQ(follower_.stats().idle_bytes.size(), 2);
}

TEST_F(OneCopyTest, ChangesAreAppliedToTheServedTable) {
  maker_.Add(Version(1).Rows({{1, 10}, {2, 20}}));
  EXPECT_EQ(Refresh(), 1);
  const auto first = follower_.current();
  maker_.Add(Version(2).Parent(1).Rows({{1, 11}}));
  EXPECT_EQ(Refresh(), 2);
  EXPECT_EQ(follower_.current()->tables, first->tables);
  EXPECT_EQ(Rows(*first, {1, 2}), (std::vector<float>{11, 20}));
  EXPECT_EQ(Weight(*first), 1);
  EXPECT_EQ(Weight(*follower_.current()), 2);
  // A whole version is read next to it.
  maker_.Add(Version(3).Rows({{1, 12}}));
  EXPECT_EQ(Refresh(), 3);
  EXPECT_EQ(Rows(*first, {1, 2}), (std::vector<float>{11, 20}));
  EXPECT_EQ(Found({1, 2}), (std::vector<float>{12, 0}));
  const FollowerStats stats = follower_.stats();
  EXPECT_EQ(stats.updates, 3);
  EXPECT_EQ(stats.full_updates, 2);
  EXPECT_TRUE(stats.idle_bytes.empty());
}

TEST_F(OneCopyTest, AnInterruptedUpdateIsUndone) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  EXPECT_EQ(Refresh(), 1);
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  int failing = 1;
  install_ = [&](const FollowedContent&) {
    return failing-- > 0 ? ResourceExhausted("no memory") : Status();
  };
  EXPECT_EQ(Refresh(), 1);
  EXPECT_EQ(follower_.stats().last_error, "no memory");
  EXPECT_EQ(Found({1}), std::vector<float>{10});
  // So is a version that was to be pinned.
  failing = 1;
  EXPECT_FALSE(follower_.Pin(2, model_, nullptr, install_).ok());
  EXPECT_EQ(follower_.stats().version, 1);
  EXPECT_FALSE(follower_.stats().pinned);
  EXPECT_EQ(Found({1}), std::vector<float>{10});
  EXPECT_EQ(follower_.stats().full_updates, 1);
  EXPECT_EQ(Refresh(), 2);
  EXPECT_EQ(Found({1}), std::vector<float>{20});
  EXPECT_EQ(follower_.stats().full_updates, 1);
}

TEST_F(OneCopyTest, AnUpdateThatCannotBeUndoneIsReadInFull) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  EXPECT_EQ(Refresh(), 1);
  install_ = [&](const FollowedContent&) {
    return ResourceExhausted("no memory");
  };
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  EXPECT_EQ(Refresh(), 1);
  std::filesystem::remove_all(maker_.VersionPath(2));
  install_ = nullptr;
  // Without a newer version, the served one is read again.
  EXPECT_EQ(Refresh(), 1);
  EXPECT_EQ(Found({1}), std::vector<float>{10});
  EXPECT_EQ(follower_.stats().full_updates, 2);
}

TEST_F(OneCopyTest, ADamagedChangeIsNotApplied) {
  maker_.Add(Version(1).Rows({{1, 10}}));
  EXPECT_EQ(Refresh(), 1);
  maker_.Add(Version(2).Parent(1).Rows({{1, 20}}));
  FlipByte(maker_.FilePath(2, "table-00000"));
  EXPECT_EQ(Refresh(), 1);
  EXPECT_EQ(Found({1}), std::vector<float>{10});
  // The change before it is applied first.
  FlipByte(maker_.FilePath(2, "table-00000"));
  maker_.Add(Version(3).Parent(2).Rows({{1, 30}}));
  FlipByte(maker_.FilePath(3, "table-00000"));
  EXPECT_EQ(Refresh(), 2);
  EXPECT_EQ(Found({1}), std::vector<float>{20});
  EXPECT_EQ(follower_.stats().full_updates, 1);
}

}  // namespace
}  // namespace lodestar
