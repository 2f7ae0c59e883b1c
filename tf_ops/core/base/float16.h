// 16-bit floats, which are computed in float and rounded when stored.

#ifndef LODESTAR_TF_OPS_CORE_BASE_FLOAT16_H_
#define LODESTAR_TF_OPS_CORE_BASE_FLOAT16_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tf_ops/core/base/host_device.h"

namespace lodestar {

// IEEE 754 binary16.
struct Float16 {
  uint16_t bits;
};
// The upper half of a float.
struct BFloat16 {
  uint16_t bits;
};

// The type that values of type T are computed in: float for 16-bit floats.
template <typename T>
using ComputeOf = std::conditional_t<
    std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

template <typename T>
LODESTAR_HOST_DEVICE inline T ToCompute(T x) {
  return x;
}
LODESTAR_HOST_DEVICE inline float ToCompute(BFloat16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}
LODESTAR_HOST_DEVICE inline float ToCompute(Float16 x) {
#ifdef __CUDA_ARCH__
  // The instruction would not keep the payload of a NaN.
  if ((x.bits & 0x7fffu) <= 0x7c00u) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(x.bits));
    return number;
  }
#endif
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  // 0.5 plus a subnormal number, exactly. This avoids subnormal floats, which a
  // thread may flush to zero.
  const uint32_t sum_bits = 0x3f000000u + magnitude;
  float sum;
  std::memcpy(&sum, &sum_bits, sizeof(sum));
  sum -= 0.5f;
  uint32_t subnormal;
  std::memcpy(&subnormal, &sum, sizeof(subnormal));
  const uint32_t normal = (magnitude << 13) + 0x38000000u;
  uint32_t bits = magnitude < 0x0400u ? subnormal : normal;
  bits = magnitude >= 0x7c00u ? (magnitude << 13) | 0x7f800000u : bits;
  bits |= sign;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

// Rounds to the nearest T, ties to even. NaN stays NaN.
template <typename T>
LODESTAR_HOST_DEVICE inline T RoundTo(ComputeOf<T> x) {
  return x;
}
template <>
LODESTAR_HOST_DEVICE inline BFloat16 RoundTo<BFloat16>(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1);
  const uint32_t nan = bits | 0x400000u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<uint16_t>((is_nan ? nan : rounded) >> 16)};
}
template <>
LODESTAR_HOST_DEVICE inline Float16 RoundTo<Float16>(float x) {
#ifdef __CUDA_ARCH__
  if (x == x) {
    uint16_t rounded;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
    return {rounded};
  }
#endif
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Rounds the mantissa of normal numbers; a carry increments the exponent, up
  // to infinity.
  const uint32_t normal =
      (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14, adding 0.5 (whose last place is 2^-24) rounds as the subnormal
  // number requires.
  float absolute;
  std::memcpy(&absolute, &magnitude, sizeof(absolute));
  absolute += 0.5f;
  uint32_t subnormal;
  std::memcpy(&subnormal, &absolute, sizeof(subnormal));
  subnormal -= 0x3f000000u;
  uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x47800000u ? 0x7c00u : result;  // 2^16
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  result = magnitude > 0x7f800000u ? nan : result;
  return {static_cast<uint16_t>(sign | result)};
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_FLOAT16_H_
