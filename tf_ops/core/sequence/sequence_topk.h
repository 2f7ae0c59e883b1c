// Largest values of each row of the matrices of a batch.
//
// Sequence b of x contains `channels` consecutive row-major matrices of R_b x
// C_b values. R_b and C_b are the lengths of two other batches.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_TOPK_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_TOPK_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tf_ops/core/base/host_device.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/sequence/sequence_units.h"

namespace lodestar {

// Returns InvalidArgument, with the sequence, if the numbers of sequences
// differ, or a sequence of x does not have the size of its matrices. Requires:
// each splits is valid (lod.h); channels >= 1.
inline Status CheckMatrixSizes(Span<const int64_t> x, Span<const int64_t> row,
                               Span<const int64_t> col, int64_t channels) {
  for (const auto& [name, splits] : {std::pair("row", row), {"col", col}}) {
    if (splits.size() != x.size()) {
      return InvalidArgument("`", name, "` has ", splits.size() - 1,
                             " sequences, but `x` has ", x.size() - 1, ".");
    }
  }
  for (int64_t b = 0; b + 1 < x.size(); ++b) {
    const int64_t length = x[b + 1] - x[b];
    const int64_t rows = row[b + 1] - row[b];
    const int64_t columns = col[b + 1] - col[b];
    // Divides, since a product may overflow.
    const bool fits = rows == 0 || columns == 0
                          ? length == 0
                          : length % rows == 0 &&
                                length / rows % columns == 0 &&
                                length / rows / columns == channels;
    if (!fits) {
      return InvalidArgument("sequence ", b, " of `x` has ", length,
                             " values, expected ", channels, " channels of ",
                             rows, " rows of ", columns, ".");
    }
  }
  return Status();
}

// Whether value x of index a precedes value y of index b: the larger first, of
// equal ones the first, and NaN after every number.
template <typename T>
LODESTAR_HOST_DEVICE bool PrecedesInTopk(T x, int64_t a, T y, int64_t b) {
  if (x > y) return true;
  if (x < y) return false;
  const bool x_is_number = x == x;
  const bool y_is_number = y == y;
  return x_is_number != y_is_number ? x_is_number : a < b;
}

// Writes the indices in x of the k largest values of each row, largest first,
// to index [R, channels, k], where R is the total number of rows; -1 if a row
// has fewer. Ties are broken by index, and NaN follows every number. Requires:
// CheckMatrixSizes.
template <typename T>
void SequenceTopk(const T* x, Span<const int64_t> x_splits,
                  Span<const int64_t> row_splits,
                  Span<const int64_t> col_splits, int64_t channels, int64_t k,
                  int64_t* index, const ParallelFor* parallel) {
  const auto better = [x](int64_t a, int64_t b) {
    return PrecedesInTopk(x[a], a, x[b], b);
  };
  // Sets best[0, k) to the best of indices [first, last), using a heap with the
  // worst one on top.
  const auto select = [&](int64_t first, int64_t last, int64_t* best) {
    const int64_t count = std::min(k, last - first);
    for (int64_t i = 0; i < count; ++i) best[i] = first + i;
    std::make_heap(best, best + count, better);
    for (int64_t i = first + count; i < last; ++i) {
      if (!better(i, best[0])) continue;
      std::pop_heap(best, best + count, better);
      best[count - 1] = i;
      std::push_heap(best, best + count, better);
    }
    std::sort_heap(best, best + count, better);
    std::fill(best + count, best + k, int64_t{-1});
  };
  const auto piece = [&](int64_t b, int64_t first, int64_t last, bool) {
    const int64_t rows = row_splits[b + 1] - row_splits[b];
    const int64_t columns = col_splits[b + 1] - col_splits[b];
    for (int64_t row = first; row < last; ++row) {
      for (int64_t channel = 0; channel < channels; ++channel) {
        const int64_t begin =
            x_splits[b] + (channel * rows + row - row_splits[b]) * columns;
        select(begin, begin + columns, index + (row * channels + channel) * k);
      }
    }
  };
  const int64_t num_rows = row_splits[row_splits.size() - 1];
  const int64_t num_numbers = x_splits[x_splits.size() - 1];
  ForSequencePieces(parallel, row_splits,
                    10 + 2 * num_numbers / std::max<int64_t>(num_rows, 1),
                    piece);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_TOPK_H_
