#include "tf_ops/core/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__SSE2__)
#include <pmmintrin.h>
#include <xmmintrin.h>
#endif

namespace lodestar {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float FloatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// The value of a 16-bit float, computed from sign, exponent and mantissa.
template <typename T>
float Defined(uint16_t bits) {
  constexpr bool kHalf = std::is_same_v<T, Float16>;
  constexpr int kMantissa = kHalf ? 10 : 7;
  constexpr int kBias = kHalf ? 15 : 127;
  constexpr int kMaxExponent = kHalf ? 31 : 255;
  const int exponent = (bits & 0x7fff) >> kMantissa;
  const int mantissa = bits & ((1 << kMantissa) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == kMaxExponent) {
    return mantissa == 0 ? static_cast<float>(sign * kInfinity) : std::nanf("");
  }
  const double unit = std::ldexp(1.0, -kBias - kMantissa + 1);
  if (exponent == 0) return static_cast<float>(sign * mantissa * unit);
  return static_cast<float>(
      sign * std::ldexp((mantissa + (1 << kMantissa)) * unit, exponent - 1));
}

template <typename T>
class Float16sTest : public testing::Test {};
using HalfTypes = testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(Float16sTest, HalfTypes);

template <typename T>
void ExpectAllNumbersGoOutAndIn() {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const T number = {static_cast<uint16_t>(bits)};
    const float wanted = Defined<T>(number.bits);
    const float x = ToCompute(number);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(x)) << bits;
      ASSERT_TRUE(std::isnan(ToCompute(RoundTo<T>(x)))) << bits;
      continue;
    }
    ASSERT_EQ(std::memcmp(&x, &wanted, sizeof(x)), 0) << bits;
    ASSERT_EQ(RoundTo<T>(x).bits, bits);
  }
}

TYPED_TEST(Float16sTest, AllValuesSurviveARoundTrip) {
  ExpectAllNumbersGoOutAndIn<TypeParam>();
}

// For every pair of neighbors: their midpoint rounds to the even one, and
// values next to it to the nearer one.
TYPED_TEST(Float16sTest, RoundsToTheNearestTiesToEven) {
  using T = TypeParam;
  for (uint32_t bits = 0; std::isfinite(Defined<T>(bits)); ++bits) {
    const double below = Defined<T>(bits);
    double above = Defined<T>(bits + 1);
    // Infinity takes the place of the next finite value.
    if (std::isinf(above)) above = 2 * below - Defined<T>(bits - 1);
    const double middle = (below + above) / 2;
    const float tie = static_cast<float>(middle);
    ASSERT_EQ(tie, middle);
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const auto round = [&](float x) -> uint32_t {
        return RoundTo<T>(sign == 0 ? x : -x).bits;
      };
      ASSERT_EQ(round(tie), sign | even) << bits;
      ASSERT_EQ(round(std::nextafter(tie, 0.0f)), sign | bits);
      ASSERT_EQ(round(std::nextafter(tie, kInfinity)), sign | (bits + 1));
    }
  }
  EXPECT_EQ(RoundTo<T>(kInfinity).bits, RoundTo<T>(3.4e38f * 10).bits);
  EXPECT_TRUE(std::isinf(ToCompute(RoundTo<T>(kInfinity))));
}

TYPED_TEST(Float16sTest, NanStaysNan) {
  for (uint32_t sign : {0u, 0x80000000u}) {
    for (uint32_t payload = 1; payload < 0x00800000u; payload += 97) {
      const float nan = FloatOf(sign | 0x7f800000u | payload);
      ASSERT_TRUE(std::isnan(ToCompute(RoundTo<TypeParam>(nan)))) << payload;
    }
  }
}

// TensorFlow's threads flush subnormal floats to zero.
#if defined(__SSE2__)
TEST(Float16Test, SubnormalHalvesSurviveFlushToZero) {
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
  ExpectAllNumbersGoOutAndIn<Float16>();
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_OFF);
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_OFF);
}
#endif

}  // namespace
}  // namespace lodestar
