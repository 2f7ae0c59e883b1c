// How the values of a row are stored: as they are, or in fewer bits by a table
// that only serves.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_STORED_ROW_H_
#define LODESTAR_TF_OPS_CORE_ROWS_STORED_ROW_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tf_ops/core/base/float16.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

// The layout of a stored row, without its metadata.
//
// kFloat16 and kBFloat16 round to the nearest number. Float16 numbers beyond
// 65504 become infinite. kInt8 stores round(x / scale), padded with zeros to a
// multiple of 4 bytes, and then the float32 scale of the row, its largest
// absolute value / 127, or 2^-126 if that is smaller. Errors are at most
// scale / 2, plus float32 rounding. A row with a number that is not finite, or
// at the end of float32's range, becomes NaN. A row without a number of at
// least 2^-126 becomes zeros.
class StoredRow {
 public:
  StoredRow(int dim, RowType type, RowStorage storage)
      : dim_(dim), type_(type), storage_(storage), bytes_(Bytes()) {}

  // Whether the values are stored as they are.
  bool is_same() const { return storage_ == RowStorage::kSame; }
  // Size of a stored row; even.
  int64_t bytes() const { return bytes_; }

  // Calls write(part, bytes, offset) with the parts of the stored form of a row
  // of values. Offsets are multiples of 8, or of 4 if a part has 4 bytes.
  template <typename Write>
  void Encode(const void* values, const Write& write) const {
    if (is_same()) return write(values, bytes_, int64_t{0});
    VisitRowType(type_, [&](auto zero) {
      const auto* const row = static_cast<const decltype(zero)*>(values);
      switch (storage_) {
        case RowStorage::kFloat16:
          return EncodeFloats<Float16>(row, write);
        case RowStorage::kBFloat16:
          return EncodeFloats<BFloat16>(row, write);
        case RowStorage::kInt8:
          return EncodeBytes(row, write);
        case RowStorage::kSame:
          return;
      }
    });
  }
  // Requires: !is_same().
  void Decode(const void* stored, void* values) const {
    VisitRowType(type_, [&](auto zero) {
      auto* const row = static_cast<decltype(zero)*>(values);
      switch (storage_) {
        case RowStorage::kFloat16:
          return DecodeFloats(static_cast<const Float16*>(stored), row);
        case RowStorage::kBFloat16:
          return DecodeFloats(static_cast<const BFloat16*>(stored), row);
        case RowStorage::kInt8: {
          const auto* const bytes = static_cast<const int8_t*>(stored);
          float scale;
          std::memcpy(&scale, bytes + ScaleOffset(), sizeof(scale));
          return DecodeBytes(bytes, scale, row);
        }
        case RowStorage::kSame:
          return;
      }
    });
  }

 private:
  static constexpr int kPart = 256;  // numbers on the stack
  static constexpr int kMostInt8 = 127;

  int64_t ScaleOffset() const { return (int64_t{dim_} + 3) / 4 * 4; }
  int64_t Bytes() const {
    switch (storage_) {
      case RowStorage::kFloat16:
      case RowStorage::kBFloat16:
        return int64_t{dim_} * 2;
      case RowStorage::kInt8:
        return ScaleOffset() + static_cast<int64_t>(sizeof(float));
      case RowStorage::kSame:
        break;
    }
    return dim_ * SizeOf(type_);
  }

  template <typename S, typename T, typename Write>
  void EncodeFloats(const T* row, const Write& write) const {
    S part[kPart];
    for (int first = 0; first < dim_; first += kPart) {
      const int count = std::min(kPart, dim_ - first);
      for (int i = 0; i < count; ++i) {
        part[i] = RoundTo<S>(ToCompute(row[first + i]));
      }
      write(part, count * int64_t{sizeof(S)}, first * int64_t{sizeof(S)});
    }
  }

  template <typename T, typename Write>
  void EncodeBytes(const T* row, const Write& write) const {
    const float scale = Scale(row);
    const bool is_number = !std::isnan(scale);
    const double divisor = is_number && scale > 0.0f ? scale : 1.0;
    int8_t part[kPart];
    for (int first = 0; first < dim_; first += kPart) {
      const int count = std::min(kPart, dim_ - first);
      for (int i = 0; i < count; ++i) {
        const double x =
            is_number ? std::nearbyint(ToCompute(row[first + i]) / divisor)
                      : 1.0;
        // The scale may have been rounded down.
        part[i] = static_cast<int8_t>(
            std::clamp(x, double{-kMostInt8}, double{kMostInt8}));
      }
      const int padded = (count + 3) / 4 * 4;
      std::fill(part + count, part + padded, int8_t{0});
      write(part, int64_t{padded}, int64_t{first});
    }
    write(&scale, int64_t{sizeof(scale)}, ScaleOffset());
  }

  // Returns NaN for a row that cannot be stored.
  template <typename T>
  float Scale(const T* row) const {
    double most = 0.0;
    bool finite = true;
    for (int c = 0; c < dim_; ++c) {
      const double x = std::abs(static_cast<double>(ToCompute(row[c])));
      finite = finite && std::isfinite(x);
      most = std::max(most, x);
    }
    const float scale = static_cast<float>(most / kMostInt8);
    // The scale of the largest numbers may be rounded up.
    if (!finite || !std::isfinite(scale * kMostInt8)) {
      return std::numeric_limits<float>::quiet_NaN();
    }
    // Threads may flush subnormal numbers to zero.
    constexpr float kLeast = std::numeric_limits<float>::min();
    return most < kLeast ? 0.0f : std::max(scale, kLeast);
  }

  template <typename S, typename T>
  void DecodeFloats(const S* __restrict stored, T* __restrict row) const {
    ForEachColumn([=](int c) { row[c] = RoundTo<T>(ToCompute(stored[c])); });
  }
  template <typename T>
  void DecodeBytes(const int8_t* __restrict stored, float scale,
                   T* __restrict row) const {
    ForEachColumn([=](int c) {
      row[c] = RoundTo<T>(static_cast<float>(stored[c]) * scale);
    });
  }
  // Blocks of known size are compiled to vector instructions.
  template <typename Visit>
  void ForEachColumn(const Visit& visit) const {
    constexpr int kBlock = 8;
    int c = 0;
    for (; c + kBlock <= dim_; c += kBlock) {
      for (int k = 0; k < kBlock; ++k) visit(c + k);
    }
    for (; c < dim_; ++c) visit(c);
  }

  const int dim_;
  const RowType type_;
  const RowStorage storage_;
  const int64_t bytes_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_STORED_ROW_H_
