// Reversal of rows [N, D] within each sequence of row_splits [B + 1].

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_REVERSE_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_REVERSE_H_

#include <cstdint>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/sequence/sequence_units.h"

namespace lodestar {

// Rows have `width` T each: T is char, for rows of bytes, or a type that is
// copied by assignment. `reversed` must not overlap `rows`. Requires: splits
// are valid for N rows (lod.h).
template <typename T>
void SequenceReverse(const T* rows, int64_t width, Span<const int64_t> splits,
                     T* reversed, const ParallelFor* parallel) {
  if (width == 0) return;
  VisitWidth<T>(width, [&](auto width) {
    ForSequencePieces(parallel, splits, 2 + width / 16,
                      [&](int64_t b, int64_t first, int64_t last, bool) {
                        const int64_t mirror = splits[b] + splits[b + 1] - 1;
                        for (int64_t r = first; r < last; ++r) {
                          CopyRows(rows + (mirror - r) * width, 1, width,
                                   reversed + r * width);
                        }
                      });
  });
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_REVERSE_H_
