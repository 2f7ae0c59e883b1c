// Level-of-detail (LoD) offsets: nested sequences over N rows.
//
//   level 0  0 2 3        two units: entries [0, 2) and [2, 3) of level 1
//   level 1  0 3 5 9      three units: rows [0, 3), [3, 5) and [5, 9)
//
// The outermost level comes first. Each level starts at 0, is non-decreasing,
// and ends at the number of units of the next level; the last level ends at N.
// An empty list of levels is a plain tensor.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_LOD_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_LOD_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

using LodLevels = std::vector<Span<const int64_t>>;

// Returns InvalidArgument, with level and index, if a level is empty, does not
// start at 0, decreases, or does not end at the number of units of the next
// level or at `num_rows`.
Status ValidateLod(const LodLevels& levels, int64_t num_rows);

// Performs the same checks on one level of offsets called `name`.
Status ValidateSplits(const char* name, Span<const int64_t> splits,
                      int64_t num_rows);

// Sets offsets to [0, l0, l0 + l1, ...] for the lengths called `name`. Returns
// InvalidArgument, with the index, if a length is not in [0, most] or the sum
// overflows int64. Requires: offsets.size() == lengths.size() + 1.
Status LengthsToOffsets(const char* name, Span<const int64_t> lengths,
                        int64_t most, Span<int64_t> offsets);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_LOD_H_
