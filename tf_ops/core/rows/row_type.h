// The types that a row's numbers may have, known when a table is made, and
// arrays of such numbers.
//
// 16-bit numbers are computed with as float, and rounded when they are stored.
// Their optimizer slots stay float: a moving average of 8 or 11 bits would soon
// stand still.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ROW_TYPE_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ROW_TYPE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tf_ops/core/base/host_device.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

enum class RowType { kFloat32, kFloat64, kFloat16, kBFloat16 };

// IEEE 754 binary16.
struct Float16 {
  uint16_t bits;
};
// The upper half of a float.
struct BFloat16 {
  uint16_t bits;
};

// What numbers of type T are computed as.
template <typename T>
using ComputeOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

LODESTAR_HOST_DEVICE inline double ToCompute(double x) { return x; }
LODESTAR_HOST_DEVICE inline float ToCompute(float x) { return x; }
LODESTAR_HOST_DEVICE inline float ToCompute(BFloat16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}
LODESTAR_HOST_DEVICE inline float ToCompute(Float16 x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  // 0.5 + a subnormal number, exactly; no subnormal float, which a thread may
  // take for zero, comes up on the way.
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

// To the nearest T, ties to even; a NaN stays one.
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
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Of normal numbers the mantissa is rounded; a carry moves the exponent on,
  // to infinity at the end.
  const uint32_t normal =
      (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14 a sum with 0.5, whose last place is 2^-24, is rounded as the
  // subnormal number is to be.
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

// sum[c] += factor * row[c] of `count` numbers; if kFirst, of sums that are yet
// to be written, as if they were zeros.
template <bool kFirst, typename T>
inline void AddScaled(const T* __restrict row, ComputeOf<T> factor,
                      int64_t count, ComputeOf<T>* __restrict sum) {
  using C = ComputeOf<T>;
  constexpr int64_t kBlock = 8;  // without a test of what is left
  int64_t c = 0;
  for (; c + kBlock <= count; c += kBlock) {
    for (int64_t k = c; k < c + kBlock; ++k) {
      sum[k] = (kFirst ? C{0} : sum[k]) + factor * ToCompute(row[k]);
    }
  }
  for (; c < count; ++c) {
    sum[c] = (kFirst ? C{0} : sum[c]) + factor * ToCompute(row[c]);
  }
}

// visit(T()) with the T of `type`.
template <typename Visit>
inline auto VisitRowType(RowType type, const Visit& visit) {
  switch (type) {
    case RowType::kFloat64:
      return visit(double());
    case RowType::kFloat16:
      return visit(Float16());
    case RowType::kBFloat16:
      return visit(BFloat16());
    case RowType::kFloat32:
      break;
  }
  return visit(float());
}

template <typename T>
constexpr RowType RowTypeOf() {
  return std::is_same_v<T, double>     ? RowType::kFloat64
         : std::is_same_v<T, Float16>  ? RowType::kFloat16
         : std::is_same_v<T, BFloat16> ? RowType::kBFloat16
                                       : RowType::kFloat32;
}

// kFloat64 or kFloat32.
inline RowType ComputeType(RowType type) {
  return type == RowType::kFloat64 ? type : RowType::kFloat32;
}

inline int64_t SizeOf(RowType type) {
  return VisitRowType(
      type, [](auto zero) { return static_cast<int64_t>(sizeof(zero)); });
}

inline const char* NameOf(RowType type) {
  return type == RowType::kFloat64    ? "float64"
         : type == RowType::kFloat16  ? "float16"
         : type == RowType::kBFloat16 ? "bfloat16"
                                      : "float32";
}

template <typename T>
inline void ToComputeRow(const T* row, int64_t size, ComputeOf<T>* out) {
  for (int64_t c = 0; c < size; ++c) out[c] = ToCompute(row[c]);
}

template <typename T>
inline void RoundRow(const ComputeOf<T>* row, int64_t size, T* out) {
  for (int64_t c = 0; c < size; ++c) out[c] = RoundTo<T>(row[c]);
}

// Fills what rows of `type` are computed as, such as an optimizer slot.
inline void FillComputed(RowType type, float value, int64_t size, void* out) {
  if (ComputeType(type) == RowType::kFloat64) {
    std::fill_n(static_cast<double*>(out), size, value);
  } else {
    std::fill_n(static_cast<float*>(out), size, value);
  }
}

// Numbers of one type, which belong to someone else.
class NumbersView {
 public:
  NumbersView() = default;
  NumbersView(RowType type, const void* data, int64_t size)
      : type_(type), data_(static_cast<const char*>(data)), size_(size) {}
  template <typename T>
  NumbersView(const std::vector<T>& numbers)
      : NumbersView(RowTypeOf<T>(), numbers.data(), numbers.size()) {}

  RowType type() const { return type_; }
  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Of number i.
  const char* at(int64_t i) const { return data_ + i * SizeOf(type_); }

 private:
  RowType type_ = RowType::kFloat32;
  const char* data_ = nullptr;
  int64_t size_ = 0;
};

// InvalidArgument unless `numbers`, an argument called `name`, are `wanted`.
inline Status CheckType(const char* name, const NumbersView& numbers,
                        RowType wanted) {
  if (numbers.type() == wanted) return Status();
  return InvalidArgument("`", name, "` holds ", NameOf(numbers.type()),
                         " numbers, but the table's are ", NameOf(wanted));
}

// Numbers of one type.
class Numbers {
 public:
  // Zeros, if there were none.
  void Resize(RowType type, int64_t size) {
    type_ = type;
    bytes_.resize(size * SizeOf(type));
  }

  RowType type() const { return type_; }
  int64_t size() const {
    return static_cast<int64_t>(bytes_.size()) / SizeOf(type_);
  }
  // Of number i.
  char* at(int64_t i) { return bytes_.data() + i * SizeOf(type_); }
  // REQUIRES: T is what type() says.
  template <typename T>
  Span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes_.data()), size()};
  }
  operator NumbersView() const { return {type_, bytes_.data(), size()}; }

  // Bit for bit.
  bool operator==(const Numbers& other) const {
    return type_ == other.type_ && bytes_ == other.bytes_;
  }

 private:
  RowType type_ = RowType::kFloat32;
  std::vector<char> bytes_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ROW_TYPE_H_
