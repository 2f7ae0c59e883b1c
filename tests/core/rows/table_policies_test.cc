#include "tf_ops/core/rows/table_policies.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace lodestar {
namespace {

TEST(TablePoliciesTest, LimitsActAtMultiplesOfTheirPeriods) {
  EvictionPolicy policy;
  policy.max_rows = 5;
  policy.max_age = 3;
  policy.min_norm = 0.5f;
  policy.min_norm_every = 10;
  policy.min_frequency = 2;
  policy.min_frequency_every = 4;
  EXPECT_EQ(policy.Due(0, 1).max_age, 3);
  EXPECT_EQ(policy.Due(0, 1).max_rows, 0);
  const auto due = [&](int64_t before, int64_t now) {
    const EvictionPolicy at = policy.Due(before, now);
    return std::make_pair(at.min_norm > 0.0f, at.min_frequency > 0);
  };
  EXPECT_EQ(due(0, 3), std::make_pair(false, false));
  EXPECT_EQ(due(3, 4), std::make_pair(false, true));
  EXPECT_EQ(due(4, 5), std::make_pair(false, false));
  EXPECT_EQ(due(9, 10), std::make_pair(true, false));
  EXPECT_EQ(due(9, 15), std::make_pair(true, true));
  EXPECT_EQ(due(15, 9), std::make_pair(false, false));
  EXPECT_EQ(due(-1, 0), std::make_pair(true, true));
  EXPECT_EQ(due(-4, -3), std::make_pair(false, false));
  EXPECT_EQ(due(-5, -4), std::make_pair(false, true));
}

}  // namespace
}  // namespace lodestar
