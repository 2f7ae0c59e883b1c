// Reshaping of sequences to rows of another width.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_RESHAPE_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_RESHAPE_H_

#include <cstdint>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

// Computes the splits of rows of new_dim values. Returns InvalidArgument, with
// the sequence, if its values do not fill whole rows. Requires: splits are
// valid (lod.h); reshaped has the size of splits; dim >= 0; new_dim >= 1; the
// number of values of all rows fits int64.
inline Status SequenceReshapeSplits(Span<const int64_t> splits, int64_t dim,
                                    int64_t new_dim, Span<int64_t> reshaped) {
  for (int64_t b = 0; b < splits.size(); ++b) {
    if (splits[b] * dim % new_dim != 0) {
      // The first such offset ends the first such sequence.
      const int64_t length = splits[b] - splits[b - 1];
      return InvalidArgument(
          "sequence ", b - 1, " has ", length, " rows of ", dim, " = ",
          length * dim, " values, not a multiple of `new_dim`=", new_dim, ".");
    }
    reshaped[b] = splits[b] * dim / new_dim;
  }
  return Status();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_RESHAPE_H_
