// An exponential function that compilers can vectorize. Unlike the C library's,
// it has the same bits on every instruction set.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_VECTOR_EXP_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_VECTOR_EXP_H_

#include <cstdint>
#include <cstring>

#include "tf_ops/core/base/isa.h"

namespace lodestar {

template <typename To, typename From>
LODESTAR_INLINE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// Bit operations, because a conditional would become a branch and prevent
// vectorization.
LODESTAR_INLINE float ZeroIf(bool condition, float x) {
  return BitCast<float>(BitCast<uint32_t>(x) &
                        (static_cast<uint32_t>(condition) - 1));
}
LODESTAR_INLINE double ZeroIf(bool condition, double x) {
  return BitCast<double>(BitCast<uint64_t>(x) &
                         (static_cast<uint64_t>(condition) - 1));
}

// exp(x) for x <= 0, accurate to 2 units in the last place; NaN for NaN. It is
// 0 where the result would be denormal, because threads differ in whether they
// flush denormals.
//
// x = n ln 2 + r with |r| <= (ln 2) / 2, and exp(x) = 2^n exp(r). The
// approximations of exp(r) are from the Cephes library (S. Moshier, expf.c
// and exp.c). Adding 1.5 * 2^(mantissa bits) rounds to an integer and leaves it
// in the lowest bits.
LODESTAR_INLINE float ExpOfNonPositive(float x) {
  constexpr float kRound = 12582912.0f;
  const float shifted = x * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const uint32_t exponent = BitCast<uint32_t>(shifted) << 23;
  const float power = BitCast<float>(exponent + BitCast<uint32_t>(1.0f));
  return ZeroIf(x < -87.3365402f, p * power);
}

LODESTAR_INLINE double ExpOfNonPositive(double x) {
  constexpr double kRound = 6755399441055744.0;
  const double shifted = x * 1.4426950408889634 + kRound;
  const double n = shifted - kRound;
  const double r =
      (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
  const double square = r * r;
  double p = 1.26177193074810590878e-4;
  p = p * square + 3.02994407707441961300e-2;
  p = p * square + 9.99999999999999999910e-1;
  p = p * r;
  double q = 3.00198505138664455042e-6;
  q = q * square + 2.52448340349684104192e-3;
  q = q * square + 2.27265548208155028766e-1;
  q = q * square + 2.0;
  const uint64_t exponent = BitCast<uint64_t>(shifted) << 52;
  const double power = BitCast<double>(exponent + BitCast<uint64_t>(1.0));
  return ZeroIf(x < -708.396418532264, (1.0 + 2.0 * (p / (q - p))) * power);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_VECTOR_EXP_H_
