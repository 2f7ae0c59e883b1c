#include "tf_ops/core/rows/row_initializer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tf_ops/core/base/hash.h"

namespace lodestar {
namespace {

// Natural logarithm of a positive normal number, to about 1e-9: the exponent,
// and the series of atanh on [sqrt(1/2), sqrt(2)).
double Log(double x) {
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

// PPND7: the z with P(Z < z) = p, for 0 < p < 1.
double InverseNormal(double p) {
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

// P(Z < -2).
constexpr double kBelowMinusTwo = 0.022750131948179195;

}  // namespace

Status RowInitializer::Create(const std::string& kind, float a, float b,
                              int64_t seed, int64_t salt, RowInitializer* out) {
  RowInitializer result;
  if (kind == "zeros") {
    result.a_ = 0.0f;
  } else if (kind == "ones") {
    result.a_ = 1.0f;
  } else if (kind == "constant") {
    result.a_ = a;
  } else if (kind == "uniform" || kind == "normal" ||
             kind == "truncated_normal") {
    result.kind_ = kind == "uniform"  ? Kind::kUniform
                   : kind == "normal" ? Kind::kNormal
                                      : Kind::kTruncatedNormal;
    result.a_ = a;
    result.b_ = b;
  } else {
    return InvalidArgument("unknown initializer '", kind,
                           "', wanted zeros, ones, constant, uniform, normal "
                           "or truncated_normal");
  }
  if (!std::isfinite(result.a_) || !std::isfinite(result.b_)) {
    return InvalidArgument("initializer '", kind,
                           "' has a non-finite number: ", a, ", ", b);
  }
  if (result.kind_ == Kind::kUniform && b < a) {
    return InvalidArgument("initializer 'uniform' has minval ", a,
                           " above maxval ", b);
  }
  if (result.kind_ != Kind::kConstant && result.kind_ != Kind::kUniform &&
      b < 0) {
    return InvalidArgument("initializer '", kind, "' has a negative stddev ",
                           b);
  }
  result.SetSeed(seed, salt);
  *out = result;
  return Status();
}

void RowInitializer::SetSeed(int64_t seed, int64_t salt) {
  seed_ = seed;
  salt_ = salt;
  const uint64_t key = Mix64(Mix64(static_cast<uint64_t>(seed) + kGoldenGamma) ^
                             static_cast<uint64_t>(salt));
  // A look-up may be drawing while a restored table takes its seed.
  __atomic_store_n(&key_, key, __ATOMIC_RELAXED);
}

template <typename T>
void RowInitializer::DrawColumns(int64_t id, int first, int count,
                                 T* columns) const {
  if (kind_ == Kind::kConstant) {
    std::fill_n(columns, count, RoundTo<T>(a_));
    return;
  }
  const uint64_t key = __atomic_load_n(&key_, __ATOMIC_RELAXED);
  const uint64_t base = Mix64(Mix64(static_cast<uint64_t>(id)) ^ key);
  for (int c = 0; c < count; ++c) {
    const uint64_t word =
        Mix64(base + (static_cast<uint64_t>(first) + c + 1) * kGoldenGamma);
    if (kind_ == Kind::kUniform) {
      const float unit = static_cast<float>(word >> 40) * 0x1p-24f;
      columns[c] = RoundTo<T>(a_ + unit * (b_ - a_));
    } else {
      // In the middle of one of 2^52 cells, so never 0 or 1.
      double p = (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
      if (kind_ == Kind::kTruncatedNormal) {
        p = kBelowMinusTwo + p * (1.0 - 2.0 * kBelowMinusTwo);
      }
      columns[c] = RoundTo<T>(static_cast<float>(a_ + b_ * InverseNormal(p)));
    }
  }
}

template void RowInitializer::DrawColumns(int64_t, int, int, float*) const;
template void RowInitializer::DrawColumns(int64_t, int, int, double*) const;
template void RowInitializer::DrawColumns(int64_t, int, int, Float16*) const;
template void RowInitializer::DrawColumns(int64_t, int, int, BFloat16*) const;

}  // namespace lodestar
