#include "tf_ops/core/rows/eviction_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tf_ops/core/base/hash.h"

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

// Rows are added, seen again (sometimes by a call of an earlier step), removed,
// evicted and moved in random order. Victims are the first rows of a model that
// sorts all rows by frequency, age and id.
TEST_P(EvictionListTest, AgreesWithAModel) {
  std::mt19937_64 rng(11);
  std::map<int64_t, uint32_t> model;  // id -> row
  int64_t step = 0;
  int64_t next_id = 0;
  const auto key_of = [&](const std::pair<const int64_t, uint32_t>& entry) {
    const RowMeta* const meta = rows_.meta(entry.second);
    EvictionKey key;
    key.frequency = GetParam() == Order::kLfu ? meta->frequency.load() : 0;
    key.last_seen = meta->last_seen;
    key.mixed_id = Mix64(static_cast<uint64_t>(entry.first));
    return key;
  };
  const auto some_row = [&] {
    const auto found = model.lower_bound(rng() % next_id);
    return found == model.end() ? model.begin() : found;
  };
  const auto some_step = [&] {
    return step - (rng() % 2 == 0 ? rng() % 3 : 0);
  };
  for (int round = 0; round < 20000; ++round) {
    const uint64_t action = model.size() < 10 ? 0 : rng() % 100;
    if (action < 35) {
      if (model.size() >= kRows / 2) continue;
      const int64_t id = next_id++;
      model[id] = NewRow(id, some_step(), 1 + rng() % 300);
      list_.Add(model[id]);
    } else if (action < 84) {
      const uint32_t row = some_row()->second;
      RowMeta* const meta = rows_.meta(row);
      list_.Remove(row);
      meta->last_seen = std::max<int64_t>(meta->last_seen, some_step());
      meta->frequency += 1;
      list_.Add(row);
    } else if (action < 88) {
      const auto removed = some_row();
      list_.Remove(removed->second);
      rows_.Free(removed->second);
      model.erase(removed);
    } else if (action < 90) {
      ++step;
    } else if (action < 96) {
      uint32_t low = 0;
      const int64_t most = rng() % 50;
      rows_.Compact(most, &low, [&](uint32_t from, uint32_t to) {
        list_.Move(from, to);
        ASSERT_EQ(model.at(rows_.meta(to)->id), from);
        model[rows_.meta(to)->id] = to;
      });
    } else {
      std::set<uint32_t> marked;
      for (uint64_t count = rng() % 5; count > 0; --count) {
        marked.insert(some_row()->second);
      }
      for (const uint32_t row : marked) list_.Mark(row);
      std::vector<std::pair<EvictionKey, int64_t>> wanted;
      for (const auto& entry : model) {
        const EvictionKey key = key_of(entry);
        if (key.last_seen == step || marked.count(entry.second) != 0) continue;
        wanted.emplace_back(key, entry.first);
      }
      std::sort(wanted.begin(), wanted.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      if (action < 99) wanted.resize(std::min<size_t>(wanted.size(), 7));
      EvictionList::Victims victims(&list_, step);
      std::vector<uint32_t> evicted;
      for (const auto& [key, id] : wanted) {
        ASSERT_EQ(victims.Peek(), model[id]) << round;
        evicted.push_back(model[id]);
        victims.Pop();
        model.erase(id);
      }
      if (action == 99) {
        ASSERT_EQ(victims.Peek(), EvictionList::kNone);
      }
      for (const uint32_t row : marked) list_.Unmark(row);
      for (const uint32_t row : evicted) rows_.Free(row);
    }
  }
  EXPECT_GT(step, 100);
}

TEST(EvictionKeyTest, ComparesFrequencyThenAgeThenId) {
  EXPECT_TRUE((EvictionKey{1, 9, 9} < EvictionKey{2, 0, 0}));
  EXPECT_TRUE((EvictionKey{1, 1, 9} < EvictionKey{1, 2, 0}));
  EXPECT_TRUE((EvictionKey{1, 1, 1} < EvictionKey{1, 1, 2}));
  EXPECT_FALSE((EvictionKey{1, 1, 1} < EvictionKey{1, 1, 1}));
}

}  // namespace
}  // namespace lodestar
