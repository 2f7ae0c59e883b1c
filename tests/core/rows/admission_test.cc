#include "tf_ops/core/rows/admission.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tf_ops/core/base/hash.h"

namespace lodestar {
namespace {

uint32_t TagOf(int64_t id) {
  return static_cast<uint32_t>(Mix64(static_cast<uint64_t>(id)) >> 32);
}

class PendingIdsTest : public testing::TestWithParam<bool> {};

TEST_P(PendingIdsTest, AgreesWithAModel) {
  EpochDomain epochs;
  PendingIds pending(&epochs, /*by_age=*/GetParam());
  std::map<int64_t, std::pair<uint32_t, int64_t>> model;
  std::mt19937_64 rng(3);
  for (int64_t step = 0; step < 20000; ++step) {
    const int64_t id = static_cast<int64_t>(rng() % 3000) - 1000;
    const uint32_t tag = TagOf(id);
    const uint32_t entry = pending.Find(tag, id);
    const auto found = model.find(id);
    ASSERT_EQ(entry == LeafIndex::kNoRow, found == model.end());
    if (found == model.end()) {
      ASSERT_TRUE(pending.Reserve(std::vector<uint32_t>{tag}).ok());
      pending.Add(tag, id, 1, step);
      model[id] = {1, step};
    } else if (rng() % 4 == 0) {
      pending.Remove(tag, entry);
      model.erase(found);
    } else {
      ASSERT_EQ(pending.occurrences(entry), found->second.first);
      ASSERT_EQ(pending.last_seen(entry), found->second.second);
      found->second = {found->second.first + 1, step};
      pending.Set(entry, found->second.first, step);
    }
    if (step % 500 == 0) {
      pending.RemoveOlder(/*max_age=*/800, step, TagOf);
      for (auto it = model.begin(); it != model.end();) {
        it = step - it->second.second > 800 ? model.erase(it) : ++it;
      }
    }
    if (step % 1500 == 0) {
      uint32_t low = 0;
      while (!pending.Compact(100, &low, TagOf)) {
      }
      while (pending.ReleaseSegment()) {
      }
    }
    ASSERT_EQ(pending.size(), static_cast<int64_t>(model.size()));
  }
  pending.ForEach([&](int64_t id, uint32_t occurrences, int64_t last_seen) {
    const auto found = model.find(id);
    ASSERT_NE(found, model.end());
    EXPECT_EQ(found->second, std::make_pair(occurrences, last_seen));
    model.erase(found);
  });
  EXPECT_TRUE(model.empty());
  pending.Clear();
  EXPECT_EQ(pending.size(), 0);
}

INSTANTIATE_TEST_SUITE_P(ByAge, PendingIdsTest, testing::Bool());

TEST(CountingSketchTest, AnEstimateIsNeverBelowTheCount) {
  CountingSketch sketch(512, 3);
  EXPECT_TRUE(sketch.counters().empty());
  EXPECT_EQ(sketch.Estimate(1), 0u);
  ASSERT_TRUE(sketch.Reserve().ok());
  std::map<int64_t, uint32_t> model;
  std::mt19937_64 rng(5);
  for (int i = 0; i < 3000; ++i) {
    const int64_t id = static_cast<int64_t>(rng() % 200);
    sketch.Raise(id, sketch.Estimate(id) + 1);
    ++model[id];
  }
  for (const auto& [id, occurrences] : model) {
    EXPECT_GE(sketch.Estimate(id), occurrences);
  }
  sketch.Raise(7, 1000);
  EXPECT_EQ(sketch.Estimate(7), 255u);
  sketch.Clear();
  EXPECT_EQ(sketch.Estimate(7), 0u);
}

}  // namespace
}  // namespace lodestar
