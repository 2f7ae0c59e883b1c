#include "tf_ops/core/base/guards.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(GuardsTest, AllHoldInARegularBuild) {
  for (const StoreGuard guard :
       {StoreGuard::kSequenceWord, StoreGuard::kReservePhase,
        StoreGuard::kOncePerStep, StoreGuard::kEpochs, StoreGuard::kRowVersion,
        StoreGuard::kChangeMarks, StoreGuard::kCopyOnWrite}) {
    EXPECT_TRUE(GuardHolds(guard));
  }
}

}  // namespace
}  // namespace lodestar
