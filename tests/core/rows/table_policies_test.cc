#include "tf_ops/core/rows/table_policies.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(TablePoliciesTest, ByDefaultEveryIdHasARowThatStays) {
  const TablePolicies policies;
  EXPECT_EQ(policies.admission.kind, AdmissionPolicy::Kind::kAll);
  EXPECT_EQ(policies.eviction.max_rows, 0);
  EXPECT_LT(policies.eviction.max_age, 0);
  EXPECT_EQ(policies.eviction.min_norm, 0.0f);
  EXPECT_EQ(policies.shared_rows, 0);
}

}  // namespace
}  // namespace lodestar
