// Padding of sequences: rows [N, W] and row_splits [B + 1] -> padded [B, T, W],
// and the inverse, given lengths [B].
//
// The semantics follow Paddle's sequence_pad and sequence_unpad.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_PAD_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_PAD_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/sequence/sequence_units.h"

namespace lodestar {

// Sets *steps (T) to `maxlen`, or to the longest length if `maxlen` is -1.
// Returns InvalidArgument if `maxlen` is less than -1, or, with the sequence,
// if one is longer. Requires: splits are valid for some number of rows (lod.h).
inline Status PaddedSteps(Span<const int64_t> splits, int64_t maxlen,
                          int64_t* steps) {
  if (maxlen < -1) {
    return InvalidArgument(
        "`maxlen` must be at least 0, or -1 for the longest "
        "length, got ",
        maxlen, ".");
  }
  int64_t longest = 0;
  for (int64_t b = 0; b + 1 < splits.size(); ++b) {
    longest = std::max(longest, splits[b + 1] - splits[b]);
  }
  *steps = maxlen < 0 ? longest : maxlen;
  if (longest <= *steps) return Status();
  int64_t b = 0;
  while (splits[b + 1] - splits[b] <= maxlen) ++b;
  return InvalidArgument("`maxlen` is ", maxlen, ", but sequence ", b, " has ",
                         splits[b + 1] - splits[b], " rows.");
}

// `pad_row` is one row. Requires: splits are valid for the rows; no length is
// greater than `steps`.
template <typename T>
void SequencePad(const T* rows, int64_t width, Span<const int64_t> splits,
                 const T* pad_row, int64_t steps, T* padded,
                 const ParallelFor* parallel) {
  if (width == 0 || steps == 0) return;
  VisitWidth<T>(width, [&](auto width) {
    // All steps cost about the same, so the ranges can start anywhere.
    RunParallel(
        parallel, (splits.size() - 1) * steps, 1 + width / 16,
        [&](int64_t begin, int64_t end) {
          int64_t b = begin / steps;
          int64_t step = begin % steps;
          while (begin < end) {
            const int64_t count = std::min(steps - step, end - begin);
            const int64_t length = splits[b + 1] - splits[b];
            const int64_t copied = std::clamp<int64_t>(length - step, 0, count);
            T* out = padded + begin * width;
            if (copied > 0) {
              CopyRows(rows + (splits[b] + step) * width, copied, width, out);
            }
            out += copied * width;
            RepeatRow(pad_row, count - copied, width, out);
            begin += count;
            step = 0;
            ++b;
          }
        });
  });
}

// Requires: splits are valid for the rows; no length is greater than `steps`.
template <typename T>
void SequenceUnpad(const T* padded, int64_t width, int64_t steps,
                   Span<const int64_t> splits, T* rows,
                   const ParallelFor* parallel) {
  if (width == 0) return;
  constexpr int64_t kAhead = 8;  // number of sequences to prefetch ahead
  const int64_t batch = splits.size() - 1;
  VisitWidth<T>(width, [&](auto width) {
    ForSequencePieces(
        parallel, splits, 2 + width / 16,
        [&](int64_t b, int64_t first, int64_t last, bool) {
          // The hardware prefetcher cannot predict where the rows of `padded`
          // begin.
          if (b + kAhead < batch) {
            const auto* soon = reinterpret_cast<const char*>(
                padded + (b + kAhead) * steps * width);
            const int64_t rows = splits[b + kAhead + 1] - splits[b + kAhead];
            const int64_t bytes =
                std::min<int64_t>(rows * width * sizeof(T), 1024);
            for (int64_t i = 0; i < bytes; i += 64) {
              __builtin_prefetch(soon + i);
            }
          }
          if (first == last) return;
          CopyRows(padded + (b * steps + first - splits[b]) * width,
                   last - first, width, rows + first * width);
        });
  });
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_PAD_H_
