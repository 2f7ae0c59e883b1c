// Partitioning of a batch of sequences into equal amounts of work, also within
// long sequences.
//
// A unit is a row or the beginning of a sequence: sequence b begins at unit
// splits[b] + b, and its row r is unit r + b + 1.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_UNITS_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_UNITS_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"

namespace lodestar {

// Number of units of a batch.
inline int64_t SequenceUnits(Span<const int64_t> splits) {
  const int64_t batch = splits.size() - 1;
  return splits[batch] + batch;
}

// Returns the first sequence that begins at or after `unit`.
inline int64_t SequenceFrom(Span<const int64_t> splits, int64_t unit) {
  int64_t low = 0;
  int64_t high = splits.size() - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (splits[middle] + middle < unit) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Calls body(b, first, last, begins) for rows [first, last) of sequence b, in
// pieces that cover all rows. `begins` is true if the piece contains the
// beginning of its sequence; each sequence, even an empty one, has exactly one
// such piece. `cost` is the estimated time per row in nanoseconds.
template <typename Body>
void ForSequencePieces(const ParallelFor* parallel, Span<const int64_t> splits,
                       int64_t cost, const Body& body) {
  const int64_t batch = splits.size() - 1;
  RunParallel(
      parallel, SequenceUnits(splits), cost, [&](int64_t begin, int64_t end) {
        int64_t b = SequenceFrom(splits, begin);
        // The units may begin inside the previous sequence.
        if (b > 0 && splits[b] + b > begin) --b;
        for (; b < batch && splits[b] + b < end; ++b) {
          body(b, std::max(splits[b], begin - b - 1),
               std::min(splits[b + 1], end - b - 1), splits[b] + b >= begin);
        }
      });
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_UNITS_H_
