// The initial value of a row depends on (seed, salt, id, column) only. It is
// therefore identical for any number of threads and shards, for any order of
// arrival, and on CPU and GPU.
//
// Uses integer arithmetic and + - * / sqrt only (no libm), so the bits are also
// the same on every machine. Normal values are drawn by inverting the
// distribution function (Wichura, Algorithm AS 241, PPND7, Applied Statistics
// 37, 1988).

#ifndef LODESTAR_TF_OPS_CORE_ROWS_INITIAL_VALUE_H_
#define LODESTAR_TF_OPS_CORE_ROWS_INITIAL_VALUE_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/host_device.h"

namespace lodestar {
namespace initial_value_internal {

// Natural logarithm of a positive normal number, accurate to about 1e-9: the
// exponent plus the atanh series on [sqrt(1/2), sqrt(2)).
LODESTAR_HOST_DEVICE inline double Log(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
  double m;
  std::memcpy(&m, &bits, sizeof(m));
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double t = (m - 1.0) / (m + 1.0);
  const double t2 = t * t;
  const double series =
      1.0 +
      t2 * (1.0 / 3 +
            t2 * (1.0 / 5 + t2 * (1.0 / 7 + t2 * (1.0 / 9 + t2 * (1.0 / 11)))));
  return exponent * 0.6931471805599453 + 2.0 * t * series;
}

// PPND7: returns z with P(Z < z) = p, for 0 < p < 1.
LODESTAR_HOST_DEVICE inline double InverseNormal(double p) {
  const double q = p - 0.5;
  if (q <= 0.425 && q >= -0.425) {
    const double r = 0.180625 - q * q;
    return q *
           (((5.9109374720e+01 * r + 1.5929113202e+02) * r + 5.0434271938e+01) *
                r +
            3.3871327179e+00) /
           (((6.7187563600e+01 * r + 7.8757757664e+01) * r + 1.7895169469e+01) *
                r +
            1.0);
  }
  double r = std::sqrt(-Log(q < 0 ? p : 1.0 - p));
  double z;
  if (r <= 5.0) {
    r -= 1.6;
    z = (((1.7023821103e-01 * r + 1.3067284816e+00) * r + 2.7568153900e+00) *
             r +
         1.4234372777e+00) /
        ((1.2021132975e-01 * r + 7.3700164250e-01) * r + 1.0);
  } else {
    r -= 5.0;
    z = (((1.7337203997e-02 * r + 4.2868294337e-01) * r + 3.0812263860e+00) *
             r +
         6.6579051150e+00) /
        ((1.2258202635e-02 * r + 2.4197894225e-01) * r + 1.0);
  }
  return q < 0 ? -z : z;
}

}  // namespace initial_value_internal

struct InitialValue {
  enum class Kind {
    kConstant,         // a
    kUniform,          // [a, b)
    kNormal,           // mean a, standard deviation b
    kTruncatedNormal,  // normal, cut at two standard deviations
  };

  Kind kind = Kind::kConstant;
  float a = 0.0f;
  float b = 0.0f;
  uint64_t key = 0;  // hash of seed and salt

  static uint64_t KeyOf(int64_t seed, int64_t salt) {
    return Mix64(Mix64(static_cast<uint64_t>(seed) + kGoldenGamma) ^
                 static_cast<uint64_t>(salt));
  }
  // Returns the `base` argument of Draw for the row of `id`.
  LODESTAR_HOST_DEVICE uint64_t BaseOf(int64_t id) const {
    return Mix64(Mix64(static_cast<uint64_t>(id)) ^ key);
  }
  LODESTAR_HOST_DEVICE float Draw(uint64_t base, int column) const {
    if (kind == Kind::kConstant) return a;
    const uint64_t word =
        Mix64(base + (static_cast<uint64_t>(column) + 1) * kGoldenGamma);
    if (kind == Kind::kUniform) {
      const float unit = static_cast<float>(word >> 40) * 0x1p-24f;
      return a + unit * (b - a);
    }
    // The middle of one of 2^52 cells, so never 0 or 1.
    double p = (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
    if (kind == Kind::kTruncatedNormal) {
      constexpr double kBelowMinusTwo = 0.022750131948179195;  // P(Z < -2)
      p = kBelowMinusTwo + p * (1.0 - 2.0 * kBelowMinusTwo);
    }
    return static_cast<float>(a + b * initial_value_internal::InverseNormal(p));
  }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_INITIAL_VALUE_H_
