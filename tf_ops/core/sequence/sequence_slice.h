// Slices of sequences: rows [offset, offset + length) of each one.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SLICE_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SLICE_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/sequence/sequence_units.h"

namespace lodestar {

// Computes the splits of the slices. Returns InvalidArgument, with the index,
// if the numbers of offsets, lengths and sequences differ, or a slice is
// negative or exceeds its sequence. Requires: splits are valid (lod.h); sliced
// has the size of splits.
inline Status SequenceSliceSplits(Span<const int64_t> splits,
                                  Span<const int64_t> offset,
                                  Span<const int64_t> length,
                                  Span<int64_t> sliced) {
  const int64_t batch = splits.size() - 1;
  const auto check = [&](const char* name, Span<const int64_t> numbers) {
    if (numbers.size() != batch) {
      return InvalidArgument("`", name, "` has ", numbers.size(),
                             " elements, but there are ", batch, " sequences.");
    }
    for (int64_t b = 0; b < batch; ++b) {
      if (numbers[b] < 0) {
        return InvalidArgument("`", name, "[", b, "]` must be at least 0, got ",
                               numbers[b], ".");
      }
    }
    return Status();
  };
  LODESTAR_RETURN_IF_ERROR(check("offset", offset));
  LODESTAR_RETURN_IF_ERROR(check("length", length));
  sliced[0] = 0;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t rows = splits[b + 1] - splits[b];
    if (offset[b] > rows || length[b] > rows - offset[b]) {
      return InvalidArgument("`length[", b, "]` is ", length[b],
                             " from `offset[", b, "]`=", offset[b],
                             ", but sequence ", b, " has length ", rows, ".");
    }
    sliced[b + 1] = sliced[b] + length[b];
  }
  return Status();
}

// Requires: `sliced` from SequenceSliceSplits.
template <typename T>
void SequenceSlice(const T* rows, int64_t dim, Span<const int64_t> splits,
                   Span<const int64_t> offset, Span<const int64_t> sliced,
                   T* out, const ParallelFor* parallel) {
  const auto copy = [&](int64_t b, int64_t first, int64_t last, bool) {
    const int64_t source = splits[b] + offset[b] + first - sliced[b];
    std::copy_n(rows + source * dim, (last - first) * dim, out + first * dim);
  };
  ForSequencePieces(parallel, sliced, 1 + dim / 4, copy);
}

// Computes the gradient [N, D] of the rows from the gradient of the slices;
// zero elsewhere. Requires: as SequenceSlice.
template <typename T>
void SequenceSliceGradient(const T* gradient, int64_t dim,
                           Span<const int64_t> splits,
                           Span<const int64_t> offset,
                           Span<const int64_t> sliced, T* rows_gradient,
                           const ParallelFor* parallel) {
  const auto spread = [&](int64_t b, int64_t first, int64_t last, bool) {
    const int64_t kept = splits[b] + offset[b];
    const int64_t low = std::clamp(kept, first, last);
    const int64_t high =
        std::clamp(kept + sliced[b + 1] - sliced[b], low, last);
    T* out = rows_gradient + first * dim;
    out = std::fill_n(out, (low - first) * dim, static_cast<T>(0));
    if (low < high) {
      out = std::copy_n(gradient + (sliced[b] + low - kept) * dim,
                        (high - low) * dim, out);
    }
    std::fill_n(out, (last - high) * dim, static_cast<T>(0));
  };
  ForSequencePieces(parallel, splits, 1 + dim / 4, spread);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SLICE_H_
