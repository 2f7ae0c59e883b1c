#include "tf_ops/core/rows/eviction_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lodestar {
namespace {

using Order = EvictionPolicy::Order;

class EvictionListTest : public testing::TestWithParam<Order> {
 protected:
  static constexpr int64_t kRows = 3000;

  EvictionListTest() : rows_(1, &arena_), list_(GetParam(), &rows_, &arena_) {
    EXPECT_TRUE(rows_.Reserve(kRows).ok());
    EXPECT_TRUE(list_.Reserve(kRows).ok());
  }
  // A row with the metadata that a lookup leaves.
  uint32_t NewRow(int64_t id, int64_t last_seen, uint32_t frequency) {
    const uint32_t row = rows_.Allocate();
    rows_.Publish(row, id, last_seen, frequency);
    return row;
  }
  std::vector<uint32_t> Victims(int64_t now) {
    std::vector<uint32_t> rows;
    EvictionList::Victims victims(&list_, now);
    while (victims.Peek() != EvictionList::kNone) {
      rows.push_back(victims.Peek());
      victims.Pop();
    }
    return rows;
  }

  Arena arena_;
  RowStore rows_;
  EvictionList list_;
};

INSTANTIATE_TEST_SUITE_P(Orders, EvictionListTest,
                         testing::Values(Order::kLru, Order::kLfu));

TEST_P(EvictionListTest, RowsAreEvictedInKeyOrder) {
  std::mt19937_64 rng(7);
  std::vector<uint32_t> all;
  int64_t step = 0;
  for (int64_t id = 0; id < kRows; ++id) {
    step += rng() % 3 == 0;
    all.push_back(NewRow(id, step, 1 + rng() % 400));
    list_.Add(all.back());
  }
  // Some are seen again.
  ++step;
  for (int64_t i = 0; i < kRows; i += 3) {
    list_.Remove(all[i]);
    rows_.meta(all[i])->last_seen = step;
    rows_.meta(all[i])->frequency += 1;
    list_.Add(all[i]);
  }
  const std::vector<uint32_t> victims = Victims(step + 1);
  std::sort(all.begin(), all.end(), [&](uint32_t a, uint32_t b) {
    return list_.KeyOf(a) < list_.KeyOf(b);
  });
  EXPECT_EQ(victims, all);
}

TEST_P(EvictionListTest, RowsOfThisStepAndMarkedOnesStay) {
  const uint32_t old = NewRow(1, 5, 1);
  const uint32_t marked = NewRow(2, 5, 1);
  const uint32_t seen_now = NewRow(3, 6, 1);
  for (const uint32_t row : {old, marked, seen_now}) list_.Add(row);
  list_.Mark(marked);
  EXPECT_EQ(Victims(6), std::vector<uint32_t>{old});
  list_.Unmark(marked);
  EXPECT_EQ(Victims(6), std::vector<uint32_t>{marked});
}

TEST_P(EvictionListTest, AMovedRowKeepsItsPlace) {
  const uint32_t first = NewRow(1, 1, 1);
  const uint32_t second = NewRow(2, 2, 1);
  const uint32_t third = NewRow(3, 3, 1);
  list_.Add(first);
  list_.Add(second);
  list_.Add(third);
  const uint32_t other = NewRow(2, 2, 1);
  list_.Move(second, other);
  EXPECT_EQ(Victims(9), (std::vector<uint32_t>{first, other, third}));
  list_.Clear();
  EXPECT_TRUE(Victims(9).empty());
}

TEST(EvictionKeyTest, ComparesFrequencyThenAgeThenId) {
  EXPECT_TRUE((EvictionKey{1, 9, 9} < EvictionKey{2, 0, 0}));
  EXPECT_TRUE((EvictionKey{1, 1, 9} < EvictionKey{1, 2, 0}));
  EXPECT_TRUE((EvictionKey{1, 1, 1} < EvictionKey{1, 1, 2}));
  EXPECT_FALSE((EvictionKey{1, 1, 1} < EvictionKey{1, 1, 1}));
}

}  // namespace
}  // namespace lodestar
