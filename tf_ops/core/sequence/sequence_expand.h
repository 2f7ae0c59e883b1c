// Repetition of sequences: unit i of the rows is repeated as often as the
// reference's unit i has rows.
//
//   splits      0   2     4     unit 0 is a b, unit 1 is c d
//   ref_splits  0   2     5     unit 0 two times, unit 1 three times
//   expanded    a b a b c d c d c d
//   starts      0       4           10
//
// The semantics follow Paddle's sequence_expand, or with one row per unit,
// sequence_expand_as.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_EXPAND_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_EXPAND_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/sequence/sequence_pool.h"
#include "tf_ops/core/sequence/sequence_units.h"

namespace lodestar {

// Computes the first row of each unit in the result, and the total number of
// rows. Returns InvalidArgument, with the unit, if that overflows int64.
// Requires: both splits are valid for some number of rows (lod.h); all three
// have the same size.
inline Status ExpandedStarts(Span<const int64_t> splits,
                             Span<const int64_t> ref_splits,
                             Span<int64_t> starts) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int64_t start = 0;
  starts[0] = 0;
  for (int64_t i = 0; i + 1 < splits.size(); ++i) {
    const int64_t length = splits[i + 1] - splits[i];
    const int64_t repeats = ref_splits[i + 1] - ref_splits[i];
    if (repeats > 0 && length > (kMax - start) / repeats) {
      return InvalidArgument("sequence ", i, " of ", length, " rows, repeated ",
                             repeats, " times, overflows the number of rows.");
    }
    start += length * repeats;
    starts[i + 1] = start;
  }
  return Status();
}

// Computes the splits of the result, one sequence per repetition. Requires:
// `starts` from ExpandedStarts; `expanded` has one element more than the last
// value of ref_splits.
inline void ExpandedSplits(Span<const int64_t> splits,
                           Span<const int64_t> ref_splits,
                           Span<const int64_t> starts, Span<int64_t> expanded,
                           const ParallelFor* parallel) {
  expanded[0] = 0;
  ForSequencePieces(parallel, ref_splits, 1,
                    [&](int64_t i, int64_t first, int64_t last, bool) {
                      const int64_t length = splits[i + 1] - splits[i];
                      for (int64_t k = first; k < last; ++k) {
                        expanded[k + 1] =
                            starts[i] + (k + 1 - ref_splits[i]) * length;
                      }
                    });
}

// Requires: `rows` has as many rows as splits, of `width` T each; `starts` from
// ExpandedStarts; `expanded` has room for starts[U] rows.
template <typename T>
void SequenceExpand(const T* rows, int64_t width, Span<const int64_t> splits,
                    Span<const int64_t> starts, T* expanded,
                    const ParallelFor* parallel) {
  if (width == 0) return;
  VisitWidth<T>(width, [&](auto width) {
    ForSequencePieces(
        parallel, starts, 2 + width / 16,
        [&](int64_t i, int64_t first, int64_t last, bool begins) {
          if (first == last) return;
          const int64_t length = splits[i + 1] - splits[i];
          const T* unit = rows + splits[i] * width;
          if (length == 1) {
            RepeatRow(unit, last - first, width, expanded + first * width);
            return;
          }
          int64_t row = begins ? 0 : (first - starts[i]) % length;
          while (first < last) {
            const int64_t count = std::min(length - row, last - first);
            CopyRows(unit + row * width, count, width,
                     expanded + first * width);
            first += count;
            row = 0;
          }
        });
  });
}

// Repeats row i ref_splits[i + 1] - ref_splits[i] times. Requires: there are as
// many rows as units in ref_splits, which are valid for the rows of the result.
template <typename T>
void SequenceExpandAs(const T* rows, int64_t width,
                      Span<const int64_t> ref_splits, T* expanded,
                      const ParallelFor* parallel) {
  if (width == 0) return;
  VisitWidth<T>(width, [&](auto width) {
    ForSequencePieces(parallel, ref_splits, 2 + width / 16,
                      [&](int64_t i, int64_t first, int64_t last, bool) {
                        RepeatRow(rows + i * width, last - first, width,
                                  expanded + first * width);
                      });
  });
}

// Computes the gradient of the rows: the sum over the repetitions, or zero. The
// result is bitwise independent of the number of threads. Requires: `gradient`
// has starts[U] rows of `dim` values; T is a float type.
template <typename T>
void SequenceExpandGradient(const T* gradient, int64_t dim,
                            Span<const int64_t> splits,
                            Span<const int64_t> ref_splits,
                            Span<const int64_t> starts, T* rows_gradient,
                            const ParallelFor* parallel) {
  if (dim == 0) return;
  ForSequencePieces(
      parallel, starts, 2 + dim / 2,
      [&](int64_t i, int64_t first, int64_t last, bool begins) {
        const int64_t length = splits[i + 1] - splits[i];
        const int64_t repeats = ref_splits[i + 1] - ref_splits[i];
        T* out = rows_gradient + splits[i] * dim;
        if (repeats == 0) {
          if (begins) std::fill_n(out, length * dim, static_cast<T>(0));
          return;
        }
        // Assigns each row of the unit to the piece that contains `repeats`
        // times its index.
        const auto row_from = [&](int64_t copy) {
          const int64_t offset = copy - starts[i];
          return offset / repeats + (offset % repeats != 0);
        };
        const int64_t end = row_from(last) * dim;
        for (int64_t c = row_from(first) * dim; c < end; c += kPoolColumns) {
          PoolSums(Combiner::kSum, gradient + starts[i] * dim + c, length * dim,
                   repeats, std::min(kPoolColumns, end - c), out + c);
        }
      });
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_EXPAND_H_
