#include "tf_ops/core/rows/eviction_orders.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/rows/row_store.h"

namespace lodestar {
namespace {

using Order = EvictionPolicy::Order;

class EvictionOrdersTest : public testing::Test {
 protected:
  EvictionOrdersTest() {
    EXPECT_TRUE(rows_.Reserve(3).ok());
    const int64_t last_seen[] = {5, 9, 7};
    const uint32_t frequencies[] = {3, 1, 2};
    for (int i = 0; i < 3; ++i) {
      rows_.Publish(rows_.Allocate(), i, last_seen[i], frequencies[i]);
    }
  }

  std::vector<int64_t> ByAge(EvictionOrders* orders) {
    std::vector<int64_t> ids;
    const EvictionList& list = *orders->by_age();
    for (uint32_t row = list.oldest(); row != EvictionList::kNone;
         row = list.after(row)) {
      ids.push_back(rows_.meta(row)->id);
    }
    return ids;
  }

  Arena arena_;
  RowStore rows_{1, &arena_};
};

TEST_F(EvictionOrdersTest, AnLfuCapWithAMaximumAgeHasTwoLists) {
  for (const Order order : {Order::kLru, Order::kLfu}) {
    EvictionPolicy policy;
    policy.max_rows = 3;
    policy.order = order;
    policy.max_age = 4;
    EvictionOrders orders(policy, &rows_, &arena_);
    ASSERT_TRUE(orders.Reserve(rows_.capacity()).ok());
    for (uint32_t row = 0; row < 3; ++row) orders.Add(row);
    EXPECT_EQ(ByAge(&orders), (std::vector<int64_t>{0, 2, 1}));
    EvictionList::Victims victims(&orders.for_cap(), /*now=*/10);
    const bool lfu = order == Order::kLfu;
    const uint32_t first = victims.Peek();
    EXPECT_EQ(rows_.meta(first)->id, lfu ? 1 : 0);
    victims.Pop();
    orders.RemoveFromOthers(first);
    EXPECT_EQ(ByAge(&orders), lfu ? (std::vector<int64_t>{0, 2})
                                  : (std::vector<int64_t>{2, 1}));
    EvictionOrders one(EvictionPolicy{3, false, order}, &rows_, &arena_);
    EXPECT_EQ(one.by_age() == nullptr, lfu);
    ASSERT_TRUE(one.Reserve(rows_.capacity()).ok());
    EXPECT_EQ(orders.bytes() > one.bytes(), lfu);
    orders.Clear();
    EXPECT_TRUE(ByAge(&orders).empty());
  }
}

TEST_F(EvictionOrdersTest, AMaximumAgeAloneHasOneList) {
  EvictionPolicy policy;
  policy.max_age = 4;
  EvictionOrders orders(policy, &rows_, &arena_);
  ASSERT_TRUE(orders.Reserve(rows_.capacity()).ok());
  for (uint32_t row = 0; row < 3; ++row) orders.Add(row);
  orders.Remove(2);
  EXPECT_EQ(ByAge(&orders), (std::vector<int64_t>{0, 1}));
}

}  // namespace
}  // namespace lodestar
