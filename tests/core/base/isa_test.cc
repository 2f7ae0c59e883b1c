#include "tf_ops/core/base/isa.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

LODESTAR_INLINE int Twice(int x) { return 2 * x; }

LODESTAR_TARGET_AVX2 int TwiceWithAvx2(int x) { return Twice(x); }

TEST(IsaTest, BestIsaIsSupported) {
  const Isa best = BestIsa();
  EXPECT_LT(static_cast<int>(best), kIsas);
  EXPECT_EQ(best, BestIsa());
  if (best == Isa::kAvx2) {
    EXPECT_EQ(TwiceWithAvx2(21), 42);
  }
}

}  // namespace
}  // namespace lodestar
