// Reductions over columns in vector registers. The number of columns is a
// compile-time constant, so that the compiler keeps the accumulators in
// registers.
//
// Vectors are never function arguments or results, because their ABI depends on
// the instruction set.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_VECTOR_COLUMNS_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_VECTOR_COLUMNS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tf_ops/core/base/isa.h"

namespace lodestar {

// Bytes of a register. Comparisons of longer vectors are not vectorized.
template <Isa kIsa>
constexpr int64_t kVectorBytes = kIsa == Isa::kAvx2 ? 32 : 16;

// Number of columns of T in kVectors registers.
template <Isa kIsa, typename T, int kVectors>
constexpr int64_t kVectorColumns =
    kVectors * kVectorBytes<kIsa> / static_cast<int64_t>(sizeof(T));

template <Isa kIsa, typename T>
struct VectorOf {
  using RowNumber = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  typedef T Type __attribute__((vector_size(kVectorBytes<kIsa>)));
  typedef RowNumber RowNumbers __attribute__((vector_size(kVectorBytes<kIsa>)));
  // For loads and stores with the alignment of T.
  typedef T Memory __attribute__((vector_size(kVectorBytes<kIsa>),
                                  aligned(alignof(T)), may_alias));
  typedef RowNumber RowNumbersMemory __attribute__((
      vector_size(kVectorBytes<kIsa>), aligned(alignof(RowNumber)), may_alias));
};

// Computes the sums, or if kMax the maxima, of the first kVectorColumns columns
// of `length` rows with a stride of `stride` values. Integers must be summed as
// unsigned ones, which wrap around. For maxima, a NaN never replaces a number.
// Requires: length >= 1.
template <Isa kIsa, int kVectors, bool kMax, typename T>
LODESTAR_INLINE void ReduceColumns(const T* rows, int64_t stride,
                                   int64_t length, T* results) {
  static_assert(kMax || std::is_floating_point_v<T> || std::is_unsigned_v<T>);
  using Memory = typename VectorOf<kIsa, T>::Memory;
  typename VectorOf<kIsa, T>::Type result[kVectors];
  const auto* row = reinterpret_cast<const Memory*>(rows);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) result[v] = row[v];
  for (int64_t r = 1; r < length; ++r) {
    row = reinterpret_cast<const Memory*>(rows + r * stride);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kMax) {
        const typename VectorOf<kIsa, T>::Type x = row[v];
        result[v] = x > result[v] ? x : result[v];
      } else {
        result[v] += row[v];
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    reinterpret_cast<Memory*>(results)[v] = result[v];
  }
}

// Computes the maxima as ReduceColumns does. `winners` receives the row of
// each, the first of equal ones. Requires: length >= 1; length fits RowNumber.
template <Isa kIsa, int kVectors, typename T>
LODESTAR_INLINE void MaximaOfColumns(
    const T* rows, int64_t stride, int64_t length, T* maxima,
    typename VectorOf<kIsa, T>::RowNumber* winners) {
  using Memory = typename VectorOf<kIsa, T>::Memory;
  using RowNumbers = typename VectorOf<kIsa, T>::RowNumbers;
  typename VectorOf<kIsa, T>::Type best[kVectors];
  RowNumbers winner[kVectors];
  RowNumbers here = {};
  const auto* row = reinterpret_cast<const Memory*>(rows);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    best[v] = row[v];
    winner[v] = here;
  }
  for (int64_t r = 1; r < length; ++r) {
    row = reinterpret_cast<const Memory*>(rows + r * stride);
    here += 1;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const typename VectorOf<kIsa, T>::Type x = row[v];
      const auto more = x > best[v];
      best[v] = more ? x : best[v];
      winner[v] = more ? here : winner[v];
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    reinterpret_cast<Memory*>(maxima)[v] = best[v];
    reinterpret_cast<typename VectorOf<kIsa, T>::RowNumbersMemory*>(
        winners)[v] = winner[v];
  }
}

// Copies the first kVectorColumns columns of a row to `count` rows at `out`.
template <Isa kIsa, int kVectors, typename T>
LODESTAR_INLINE void RepeatColumns(const T* row, int64_t stride, int64_t count,
                                   T* out) {
  using Memory = typename VectorOf<kIsa, T>::Memory;
  typename VectorOf<kIsa, T>::Type copy[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    copy[v] = reinterpret_cast<const Memory*>(row)[v];
  }
  for (int64_t r = 0; r < count; ++r) {
    auto* to = reinterpret_cast<Memory*>(out + r * stride);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) to[v] = copy[v];
  }
}

// Writes the first kVectorColumns columns of `count` rows at `out`: the value
// of `row` in the row that won the column, zeros elsewhere.
template <Isa kIsa, int kVectors, typename T>
LODESTAR_INLINE void PutColumns(
    const T* row, const typename VectorOf<kIsa, T>::RowNumber* winners,
    int64_t stride, int64_t count, T* out) {
  using Memory = typename VectorOf<kIsa, T>::Memory;
  using RowNumbers = typename VectorOf<kIsa, T>::RowNumbers;
  typename VectorOf<kIsa, T>::Type copy[kVectors];
  RowNumbers winner[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    copy[v] = reinterpret_cast<const Memory*>(row)[v];
    winner[v] =
        reinterpret_cast<const typename VectorOf<kIsa, T>::RowNumbersMemory*>(
            winners)[v];
  }
  const typename VectorOf<kIsa, T>::Type zero = {};
  RowNumbers here = {};
  for (int64_t r = 0; r < count; ++r) {
    auto* to = reinterpret_cast<Memory*>(out + r * stride);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      to[v] = winner[v] == here ? copy[v] : zero;
    }
    here += 1;
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_VECTOR_COLUMNS_H_
