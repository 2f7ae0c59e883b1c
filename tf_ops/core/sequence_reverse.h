// Rows [N, D] in reverse order inside each sequence of row_splits [B + 1].

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_REVERSE_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_REVERSE_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/parallel.h"
#include "tf_ops/core/sequence_units.h"
#include "tf_ops/core/span.h"

namespace lodestar {

// T is anything that can be copied; `reversed` is other memory than `rows`.
// REQUIRES: splits are valid for N rows (core/lod.h).
template <typename T>
void SequenceReverse(const T* rows, int64_t dim, Span<const int64_t> splits,
                     T* reversed, const ParallelFor* parallel) {
  if (dim == 0) return;
  ForSequencePieces(
      parallel, splits, 2 + dim * static_cast<int64_t>(sizeof(T)) / 8,
      [&](int64_t b, int64_t first, int64_t last, bool) {
        const int64_t mirror = splits[b] + splits[b + 1] - 1;
        if (dim == 1) {
          for (int64_t r = first; r < last; ++r) reversed[r] = rows[mirror - r];
          return;
        }
        for (int64_t r = first; r < last; ++r) {
          std::copy_n(rows + (mirror - r) * dim, dim, reversed + r * dim);
        }
      });
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_REVERSE_H_
