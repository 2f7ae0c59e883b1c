#include "tf_ops/core/sequence/sequence_expand.h"

#include <limits>

namespace lodestar {

Status ExpandedStarts(Span<const int64_t> splits,
                      Span<const int64_t> ref_splits, Span<int64_t> starts) {
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

void ExpandedSplits(Span<const int64_t> splits, Span<const int64_t> ref_splits,
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

}  // namespace lodestar
