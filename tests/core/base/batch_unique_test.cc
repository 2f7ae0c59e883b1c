#include "tf_ops/core/base/batch_unique.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <unordered_map>
#include <vector>

#include "tests/core/testing/chosen_ids.h"
#include "tests/core/testing/cpu_time.h"

namespace lodestar {
namespace {

TEST(BatchUniqueTest, KeepsTheOrderOfFirstOccurrence) {
  const std::vector<int64_t> ids = {5, INT64_MIN, 5, -1, INT64_MIN, 0};
  std::vector<int64_t> positions(ids.size());
  std::vector<int64_t> unique;
  BatchUnique(ids, nullptr, &unique, positions);
  EXPECT_EQ(unique, (std::vector<int64_t>{5, INT64_MIN, -1, 0}));
  EXPECT_EQ(positions, (std::vector<int64_t>{0, 1, 0, 2, 1, 3}));
}

TEST(BatchUniqueTest, LeavesPaddingOut) {
  const std::vector<int64_t> ids = {0, 3, 0, 4};
  const int64_t padding = 0;
  std::vector<int64_t> positions(ids.size());
  std::vector<int64_t> unique;
  BatchUnique(ids, &padding, &unique, positions);
  EXPECT_EQ(unique, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(positions, (std::vector<int64_t>{-1, 0, -1, 1}));
}

TEST(BatchUniqueTest, EmptyBatch) {
  std::vector<int64_t> none;
  std::vector<int64_t> unique = {1};
  BatchUnique(none, nullptr, &unique, none);
  EXPECT_TRUE(unique.empty());
}

TEST(BatchUniqueTest, AgreesWithAModel) {
  std::mt19937_64 rng(7);
  for (int size : {1, 17, 1000, 20000}) {
    std::vector<int64_t> ids(size);
    for (int64_t& id : ids) id = (rng() % (size / 2 + 1)) << 32;
    std::vector<int64_t> positions(size);
    std::vector<int64_t> unique;
    BatchUnique(ids, nullptr, &unique, positions);
    std::unordered_map<int64_t, int64_t> model;
    for (int64_t id : ids) model.emplace(id, model.size());
    ASSERT_EQ(unique.size(), model.size());
    for (int i = 0; i < size; ++i) ASSERT_EQ(positions[i], model[ids[i]]);
  }
}

// Linear probing of one cell would take 10,000 times as long.
TEST(BatchUniqueTest, ChosenIdsTakeNoLonger) {
  constexpr int64_t kIds = 20000;
  std::vector<int64_t> unique;
  std::vector<int64_t> positions(kIds);
  const auto seconds = [&](const std::vector<int64_t>& ids) {
    return CpuSecondsOf([&] { BatchUnique(ids, nullptr, &unique, positions); });
  };
  const double usual = seconds(RandomIds(kIds));
  EXPECT_LT(seconds(IdsWithEqualLowBits(kIds)), 10 * usual);
}

}  // namespace
}  // namespace lodestar
