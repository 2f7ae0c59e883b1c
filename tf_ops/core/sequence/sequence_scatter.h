// Positions of the values of sequences in a matrix with one row per sequence.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SCATTER_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SCATTER_H_

#include <cstdint>

#include "tf_ops/core/base/host_device.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

// Returns the position of column `index` of row b, or -1 if it is not in [0,
// width).
LODESTAR_HOST_DEVICE inline int64_t ScatterPlace(int64_t b, int64_t index,
                                                 int64_t width) {
  return index < 0 || index >= width ? -1 : b * width + index;
}

// Sets places[p] to the position of index[p] for each p of sequence b. Returns
// InvalidArgument, with p and b, if an index is not in [0, width). Requires:
// splits are valid for index.size() rows (lod.h); places has the size of index
// and may be index; the product of width and the number of sequences fits
// int64.
inline Status SequenceScatterPlaces(Span<const int64_t> index,
                                    Span<const int64_t> splits, int64_t width,
                                    Span<int64_t> places) {
  for (int64_t b = 0; b + 1 < splits.size(); ++b) {
    for (int64_t p = splits[b]; p < splits[b + 1]; ++p) {
      const int64_t place = ScatterPlace(b, index[p], width);
      if (place < 0) {
        return InvalidArgument("`index[", p, "]` must be in [0, ", width,
                               "), got ", index[p], " in sequence ", b, ".");
      }
      places[p] = place;
    }
  }
  return Status();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SCATTER_H_
