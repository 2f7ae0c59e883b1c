#include "tf_ops/core/rows/admission_rule.h"

#include <gtest/gtest.h>

#include <set>

namespace lodestar {
namespace {

TEST(SaturatingAddTest, Saturates) {
  EXPECT_EQ(SaturatingAdd(3, 4), 7u);
  EXPECT_EQ(SaturatingAdd(0xfffffffe, 1), 0xffffffffu);
  EXPECT_EQ(SaturatingAdd(0xfffffffe, 2), 0xffffffffu);
}

TEST(IsOlderTest, ComparesWithoutOverflow) {
  EXPECT_FALSE(IsOlder(3, 5, 2));
  EXPECT_TRUE(IsOlder(3, 6, 2));
  EXPECT_TRUE(IsOlder(INT64_MIN, INT64_MAX, INT64_MAX));
}

TEST(ForEachCounterTest, SpreadsTheCounters) {
  std::set<int64_t> counters;
  for (int64_t id = 0; id < 100; ++id) {
    ForEachCounter(id, 1000, 3, [&](int64_t c) {
      EXPECT_GE(c, 0);
      EXPECT_LT(c, 1000);
      counters.insert(c);
    });
  }
  EXPECT_GT(counters.size(), 230u);
}

TEST(AdmissionRuleTest, CountsOncePerStep) {
  AdmissionRule rule;
  rule.min_count = 3;
  rule.counts = true;
  AdmissionRule::Result result = rule.Apply(1, /*this_step=*/false, 0);
  EXPECT_TRUE(result.fresh);
  EXPECT_EQ(result.occurrences, 2u);
  EXPECT_FALSE(result.admitted);
  result = rule.Apply(2, /*this_step=*/true, 0);
  EXPECT_FALSE(result.fresh);
  EXPECT_EQ(result.occurrences, 2u);
  result = rule.Apply(2, /*this_step=*/false, 0);
  EXPECT_TRUE(result.admitted);
  EXPECT_EQ(result.frequency, 3u);
}

TEST(AdmissionRuleTest, CountsOccurrences) {
  AdmissionRule rule;
  rule.min_count = 5;
  rule.counts = true;
  rule.by_occurrence = true;
  const AdmissionRule::Result result = rule.Apply(2, /*this_step=*/true, 4);
  EXPECT_TRUE(result.fresh);
  EXPECT_TRUE(result.admitted);
  EXPECT_EQ(result.occurrences, 6u);
  EXPECT_EQ(result.frequency, 2u);
}

TEST(AdmissionRuleTest, AnEstimateIsAtMostTheMinimum) {
  AdmissionRule rule;
  rule.min_count = 3;
  rule.sketch = true;
  rule.counts = true;
  EXPECT_EQ(rule.Apply(9, /*this_step=*/false, 0).frequency, 3u);
}

TEST(AdmissionRuleTest, AdmitsAllOrNone) {
  AdmissionRule rule;
  rule.min_count = 3;
  rule.admits_all = true;
  EXPECT_TRUE(rule.Apply(0, /*this_step=*/false, 0).admitted);
  rule.admits_all = false;
  rule.admits_none = true;
  EXPECT_FALSE(rule.Apply(9, /*this_step=*/false, 0).admitted);
}

}  // namespace
}  // namespace lodestar
