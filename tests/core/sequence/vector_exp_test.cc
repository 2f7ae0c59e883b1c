#include "tf_ops/core/sequence/vector_exp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace lodestar {
namespace {

TEST(VectorExpTest, FloatsAreAccurateToTwoUnits) {
  // Every 1009th float from -0 to the logarithm of the smallest normal one.
  for (uint32_t bits = BitCast<uint32_t>(-0.0f);
       bits <= BitCast<uint32_t>(-87.3365402f); bits += 1009) {
    const float x = BitCast<float>(bits);
    const double wanted = std::exp(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::ilogb(wanted) - 23);
    ASSERT_LE(std::abs(ExpOfNonPositive(x) - wanted), 2 * unit) << x;
  }
}

TEST(VectorExpTest, DoublesAreAccurateToTwoUnits) {
  for (double x = 0.0; x > -708.39; x -= 0.000719) {
    const double wanted = std::exp(x);
    const double unit = std::ldexp(1.0, std::ilogb(wanted) - 52);
    ASSERT_LE(std::abs(ExpOfNonPositive(x) - wanted), 2 * unit) << x;
  }
}

template <typename V>
void CheckEnds() {
  const V infinity = std::numeric_limits<V>::infinity();
  EXPECT_EQ(ExpOfNonPositive(V{0}), V{1});
  for (const V x : {-infinity, std::numeric_limits<V>::lowest(), V{-1e4}}) {
    EXPECT_EQ(ExpOfNonPositive(x), V{0});
  }
  EXPECT_TRUE(
      std::isnan(ExpOfNonPositive(std::numeric_limits<V>::quiet_NaN())));
  // Around the smallest normal number the result is normal or 0.
  const V edge = std::log(std::numeric_limits<V>::min());
  V x = edge + V{1e-3};
  for (int i = 0; i < 100000 && x > edge - V{1e-3}; ++i) {
    const V e = ExpOfNonPositive(x);
    ASSERT_TRUE(e == V{0} || e >= std::numeric_limits<V>::min()) << x;
    x = std::nextafter(x, -infinity);
  }
  EXPECT_EQ(ExpOfNonPositive(edge - V{1e-3}), V{0});
}

TEST(VectorExpTest, EndsOfFloat) { CheckEnds<float>(); }

TEST(VectorExpTest, EndsOfDouble) { CheckEnds<double>(); }

}  // namespace
}  // namespace lodestar
