#include "tf_ops/core/rows/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lodestar {
namespace {

template <typename T>
class StochasticRoundingTest : public testing::Test {
 protected:
  // The neighbors of x in T.
  static float Below(float x) {
    T nearest = RoundTo<T>(x);
    while (std::fabs(ToCompute(nearest)) > std::fabs(x)) --nearest.bits;
    return ToCompute(nearest);
  }
  static float Above(float x) {
    T nearest = RoundTo<T>(x);
    while (std::fabs(ToCompute(nearest)) < std::fabs(x)) ++nearest.bits;
    return ToCompute(nearest);
  }
};

using HalfTypes = testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(StochasticRoundingTest, HalfTypes);

// Over many rows, columns and steps.
TYPED_TEST(StochasticRoundingTest, TheMeanIsTheValue) {
  using T = TypeParam;
  for (const float x : {1.0001f, -0.3337f, 123.456f, -3e-3f, 7.7e-6f, -1.1e-7f,
                        2e-9f, 60000.5f}) {
    const float below = this->Below(x);
    const float above = this->Above(x);
    double sum = 0;
    int64_t count = 0;
    for (int step = 0; step < 40; ++step) {
      const auto rounding = StochasticRounding::Of(17, step, false);
      for (int64_t id = -50; id < 50; ++id) {
        const uint32_t row = rounding.WordOf(id);
        for (int column = 0; column < 25; ++column, ++count) {
          const float rounded = RoundStochastically<T>(x, row, column);
          ASSERT_TRUE(rounded == below || rounded == above) << x;
          ASSERT_EQ(ToCompute(RoundTo<T>(rounded)), rounded);
          sum += rounded;
        }
      }
    }
    // Five standard deviations of the mean, at most half of the distance each.
    const double limit = 5 * std::fabs(above - below) / 2 / std::sqrt(count);
    EXPECT_NEAR(sum / count, x, limit) << x;
  }
}

TYPED_TEST(StochasticRoundingTest, RepresentedValuesStay) {
  using T = TypeParam;
  for (int bits = 0; bits < 65536; ++bits) {
    const float x = ToCompute(T{static_cast<uint16_t>(bits)});
    const float rounded = RoundStochastically<T>(x, bits * 77u, bits);
    if (x == x) {
      EXPECT_EQ(rounded, x);
      EXPECT_EQ(std::signbit(rounded), std::signbit(x));
    } else {
      EXPECT_NE(rounded, rounded);
    }
  }
}

TYPED_TEST(StochasticRoundingTest, TheEndOfTheRangeIsRoundedToNearest) {
  using T = TypeParam;
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest =
      ToCompute(T{static_cast<uint16_t>(RoundTo<T>(infinity).bits - 1)});
  for (const float sign : {1.0f, -1.0f}) {
    EXPECT_EQ(RoundStochastically<T>(sign * infinity, 1, 2), sign * infinity);
    const float x = sign * std::nextafter(largest, infinity);
    EXPECT_EQ(RoundStochastically<T>(x, 1, 2), x);
  }
}

TYPED_TEST(StochasticRoundingTest, ColumnsAreRoundedAsSingleValues) {
  using T = TypeParam;
  const auto rounding = StochasticRounding::Of(1, 2, false);
  std::vector<float> columns(37);
  for (size_t c = 0; c < columns.size(); ++c) {
    columns[c] = 0.01f * static_cast<float>(c) - 0.12f;
  }
  std::vector<float> rounded = columns;
  RoundColumns<T>(StochasticRounding(), 5, 0, 37, rounded.data());
  EXPECT_EQ(rounded, columns);
  RoundColumns<T>(rounding, 5, 0, 20, rounded.data());
  RoundColumns<T>(rounding, 5, 20, 17, rounded.data() + 20);
  for (int c = 0; c < 37; ++c) {
    EXPECT_EQ(rounded[c],
              RoundStochastically<T>(columns[c], rounding.WordOf(5), c));
  }
}

TEST(StochasticRoundingOfTest, WiderTypesAreNotRounded) {
  const auto rounding = StochasticRounding::Of(1, 2, false);
  float x = 0.1f;
  RoundColumns<float>(rounding, 5, 0, 1, &x);
  EXPECT_EQ(x, 0.1f);
}

TEST(StochasticRoundingOfTest, TablesStepsAndKindsOfRowsHaveDifferentBits) {
  const uint32_t word = StochasticRounding::Of(1, 2, false).WordOf(3);
  EXPECT_EQ(StochasticRounding::Of(1, 2, false).WordOf(3), word);
  EXPECT_NE(StochasticRounding::Of(2, 2, false).WordOf(3), word);
  EXPECT_NE(StochasticRounding::Of(1, 3, false).WordOf(3), word);
  EXPECT_NE(StochasticRounding::Of(1, 2, true).WordOf(3), word);
  EXPECT_NE(StochasticRounding::Of(1, 2, false).WordOf(4), word);
}

}  // namespace
}  // namespace lodestar
