// Element types of rows, fixed when a table is created, and arrays of them.
//
// All types are computed in float; 16-bit values are rounded when stored.
// Optimizer slots are always float: a moving average with 8 or 11 bits of
// mantissa would soon stop changing.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ROW_TYPE_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ROW_TYPE_H_

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tf_ops/core/base/float16.h"
#include "tf_ops/core/base/host_device.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

// Maximum embedding dimension.
constexpr int kMaxDim = 65536;

enum class RowType { kFloat32, kFloat16, kBFloat16 };

// sum[c] += factor * row[c] for `count` columns. With kFirst, the sums are
// uninitialized and treated as zeros.
template <bool kFirst, typename T>
inline void AddScaled(const T* __restrict row, float factor, int64_t count,
                      float* __restrict sum) {
  constexpr int64_t kBlock = 8;  // columns per iteration without a bounds check
  int64_t c = 0;
  for (; c + kBlock <= count; c += kBlock) {
    for (int64_t k = c; k < c + kBlock; ++k) {
      sum[k] = (kFirst ? 0.0f : sum[k]) + factor * ToCompute(row[k]);
    }
  }
  for (; c < count; ++c) {
    sum[c] = (kFirst ? 0.0f : sum[c]) + factor * ToCompute(row[c]);
  }
}

// Returns whether a row's Euclidean norm is less than `norm`. Sums in column
// order, so the result is the same everywhere.
template <typename T>
LODESTAR_HOST_DEVICE inline bool IsShorter(const T* row, int64_t dim,
                                           float norm) {
  double squares = 0.0;
  for (int64_t c = 0; c < dim; ++c) {
    const double x = ToCompute(row[c]);
    squares += x * x;
  }
  return squares < static_cast<double>(norm) * norm;
}

// Calls visit(T()) with the T of `type`.
template <typename Visit>
inline auto VisitRowType(RowType type, const Visit& visit) {
  switch (type) {
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
  return std::is_same_v<T, Float16>    ? RowType::kFloat16
         : std::is_same_v<T, BFloat16> ? RowType::kBFloat16
                                       : RowType::kFloat32;
}

inline int64_t SizeOf(RowType type) {
  return VisitRowType(
      type, [](auto zero) { return static_cast<int64_t>(sizeof(zero)); });
}

inline const char* NameOf(RowType type) {
  return type == RowType::kFloat16    ? "float16"
         : type == RowType::kBFloat16 ? "bfloat16"
                                      : "float32";
}

template <typename T>
inline void ToComputeRow(const T* row, int64_t size, float* out) {
  for (int64_t c = 0; c < size; ++c) out[c] = ToCompute(row[c]);
}

template <typename T>
inline void RoundRow(const float* row, int64_t size, T* out) {
  for (int64_t c = 0; c < size; ++c) out[c] = RoundTo<T>(row[c]);
}

// A non-owning array of values of one type.
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
  // Address of value i.
  const char* at(int64_t i) const { return data_ + i * SizeOf(type_); }

 private:
  RowType type_ = RowType::kFloat32;
  const char* data_ = nullptr;
  int64_t size_ = 0;
};

// Returns InvalidArgument unless argument `name` has type `wanted`.
inline Status CheckType(const char* name, const NumbersView& numbers,
                        RowType wanted) {
  if (numbers.type() == wanted) return Status();
  return InvalidArgument("`", name, "` has dtype ", NameOf(numbers.type()),
                         ", but the table's rows are ", NameOf(wanted), ".");
}

// An owning array of values of one type.
class Numbers {
 public:
  // New values are zeros.
  void Resize(RowType type, int64_t size) {
    type_ = type;
    bytes_.resize(size * SizeOf(type));
  }

  RowType type() const { return type_; }
  int64_t size() const {
    return static_cast<int64_t>(bytes_.size()) / SizeOf(type_);
  }
  // Address of value i.
  char* at(int64_t i) { return bytes_.data() + i * SizeOf(type_); }
  // Requires: T matches type().
  template <typename T>
  Span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes_.data()), size()};
  }
  operator NumbersView() const { return {type_, bytes_.data(), size()}; }

  // Compares bit for bit.
  bool operator==(const Numbers& other) const {
    return type_ == other.type_ && bytes_ == other.bytes_;
  }

 private:
  RowType type_ = RowType::kFloat32;
  std::vector<char> bytes_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ROW_TYPE_H_
