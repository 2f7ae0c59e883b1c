// Windows over sequences: rows [N, D] and row_splits [B + 1] -> [N, size, D].
//
//   out[r][j] = row r + start + j if it is in the sequence of row r, else pad
//
// Input of sequence convolutions and of the enumeration of n-grams. T is a
// numeric type, or a 16-bit float type that converts to and from float, in
// which sums are accumulated.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_CONTEXT_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_CONTEXT_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tf_ops/core/base/host_device.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/sequence/sequence_units.h"

namespace lodestar {

// A start further away could overflow, and its windows contain only padding.
constexpr int64_t kMaxContextStart = int64_t{1} << 60;

// Positions [first, last) of windows.
struct WindowPositions {
  int64_t first;
  int64_t last;
};

// Returns the positions of a row of the sequence [first, last) in windows: it
// has position j in window row - start - j.
LODESTAR_HOST_DEVICE inline WindowPositions PositionsOfRow(
    int64_t row, int64_t first, int64_t last, int64_t start, int64_t size) {
  const auto clamped = [size](int64_t j) {
    return j < 0 ? int64_t{0} : (j > size ? size : j);
  };
  return {clamped(row - start - last + 1), clamped(row - start - first + 1)};
}

// Requires: splits are valid for N rows (lod.h); size >= 1; |start| <=
// kMaxContextStart.
template <typename T>
void SequenceContext(const T* rows, int64_t dim, Span<const int64_t> splits,
                     int64_t start, int64_t size, T pad_value, T* windows,
                     const ParallelFor* parallel) {
  if (dim == 0) return;
  const auto window = [&](int64_t row, int64_t first, int64_t last) {
    // Rows [low, high) of the window are in the sequence and contiguous.
    const int64_t low = std::clamp(first - row - start, int64_t{0}, size) * dim;
    const int64_t high = std::clamp(last - row - start, int64_t{0}, size) * dim;
    T* out = windows + row * size * dim;
    if (low >= high) {
      std::fill_n(out, size * dim, pad_value);
      return;
    }
    std::fill_n(out, low, pad_value);
    std::copy_n(rows + (row + start) * dim + low, high - low, out + low);
    std::fill_n(out + high, size * dim - high, pad_value);
  };
  ForSequencePieces(parallel, splits, 4 + size * dim / 4,
                    [&](int64_t b, int64_t first, int64_t last, bool) {
                      for (int64_t row = first; row < last; ++row) {
                        window(row, splits[b], splits[b + 1]);
                      }
                    });
}

// Computes the gradient [N, D] of the rows from the gradient of the
// windows [N, size, D]. Each row sums its occurrences in windows by ascending
// position. Requires: as SequenceContext; T is a float type.
template <typename T>
void SequenceContextGradient(const T* gradient, int64_t dim,
                             Span<const int64_t> splits, int64_t start,
                             int64_t size, T* rows_gradient,
                             const ParallelFor* parallel) {
  using Sum = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
  // The sums stay in the L1 cache.
  constexpr int64_t kColumns = 64;
  const auto collect = [&](int64_t row, int64_t first, int64_t last) {
    const WindowPositions positions =
        PositionsOfRow(row, first, last, start, size);
    for (int64_t c = 0; c < dim; c += kColumns) {
      const int64_t n = std::min(kColumns, dim - c);
      Sum sums[kColumns] = {};
      for (int64_t j = positions.first; j < positions.last; ++j) {
        const T* in = gradient + ((row - start - j) * size + j) * dim + c;
        for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<Sum>(in[i]);
      }
      T* out = rows_gradient + row * dim + c;
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(sums[i]);
    }
  };
  ForSequencePieces(parallel, splits, 4 + size * dim / 4,
                    [&](int64_t b, int64_t first, int64_t last, bool) {
                      for (int64_t row = first; row < last; ++row) {
                        collect(row, splits[b], splits[b + 1]);
                      }
                    });
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_CONTEXT_H_
