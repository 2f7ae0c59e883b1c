// What tests of SnapshotFollower share.

#ifndef LODESTAR_TESTS_CORE_SERVING_FOLLOWER_TEST_H_
#define LODESTAR_TESTS_CORE_SERVING_FOLLOWER_TEST_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/testing/snapshot_folders.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/serving/snapshot_follower.h"

namespace lodestar {

constexpr int kDim = 2;

inline FollowingModel Model(RowStorage storage = RowStorage::kSame) {
  RowInitializer initializer;
  EXPECT_TRUE(
      RowInitializer::Create("zeros", 0.0f, 0.0f, 1, 2, &initializer).ok());
  std::unique_ptr<EmbeddingStore> store;
  TablePolicies policies;
  policies.storage = storage;
  EXPECT_TRUE(
      EmbeddingStore::Create(kDim, 4, initializer, &store, policies).ok());
  FollowingModel model;
  model.tables.push_back({"t", std::move(store), TablePart(), nullptr});
  model.weights.push_back({"dense/bias", "float32", {1}});
  return model;
}

inline MadeVersion Version(int64_t number) {
  MadeVersion made(number);
  return made.Weights({{"dense/bias", {static_cast<float>(number)}}});
}

// Returns the first value of each row, or 0 if the row is missing.
inline std::vector<float> Rows(const FollowedContent& content,
                               const std::vector<int64_t>& ids) {
  std::vector<float> rows(ids.size() * kDim);
  EXPECT_TRUE(
      content.tables[0]
          ->FindRows(ids, nullptr, Missing(), rows.data(), nullptr, Execution())
          .ok());
  std::vector<float> first;
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(rows[i * kDim], rows[i * kDim + 1]);
    first.push_back(rows[i * kDim]);
  }
  return first;
}

inline float Weight(const FollowedContent& content) {
  float weight = 0;
  EXPECT_EQ(content.weights.at(0).size(), sizeof(weight));
  std::memcpy(&weight, content.weights[0].data(), sizeof(weight));
  return weight;
}

// A follower of a folder that tests write.
class FollowerTest : public testing::Test {
 protected:
  explicit FollowerTest(TableCopies copies)
      : follower_(maker_.path(), copies) {}

  int64_t Refresh() {
    follower_.Refresh(model_, nullptr, install_);
    return follower_.stats().version;
  }
  std::vector<float> Found(const std::vector<int64_t>& ids) {
    return Rows(*follower_.current(), ids);
  }
  int64_t BytesOf(int64_t version, const char* file) const {
    return static_cast<int64_t>(
        std::filesystem::file_size(maker_.FilePath(version, file)));
  }
  void ExpectError(const std::string& message) {
    const std::string error = follower_.stats().last_error;
    if (message.empty()) {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_NE(error.find(message), std::string::npos) << error;
    }
  }

  const FolderMaker maker_;
  FollowingModel model_ = Model();
  SnapshotFollower follower_;
  SnapshotFollower::Install install_;
};

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_SERVING_FOLLOWER_TEST_H_
