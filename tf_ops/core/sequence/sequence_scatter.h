// Positions of the values of sequences in a matrix with one row per sequence.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SCATTER_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SCATTER_H_

#include <cstdint>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

// Sets places[p] = b * width + index[p] for each p of sequence b. Returns
// InvalidArgument, with p and b, if an index is not in [0, width). Requires:
// splits are valid for index.size() rows (lod.h); places has the size of index;
// the product of width and the number of sequences fits int64.
inline Status SequenceScatterPlaces(Span<const int64_t> index,
                                    Span<const int64_t> splits, int64_t width,
                                    Span<int64_t> places) {
  for (int64_t b = 0; b + 1 < splits.size(); ++b) {
    for (int64_t p = splits[b]; p < splits[b + 1]; ++p) {
      if (index[p] < 0 || index[p] >= width) {
        return InvalidArgument("`index[", p, "]` must be in [0, ", width,
                               "), got ", index[p], " in sequence ", b, ".");
      }
      places[p] = b * width + index[p];
    }
  }
  return Status();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SCATTER_H_
