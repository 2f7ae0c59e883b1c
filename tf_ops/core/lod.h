// Level-of-detail offsets: nested sequences over N rows.
//
//   level 0  0 2 3        two units: entries [0, 2) and [2, 3) of level 1
//   level 1  0 3 5 9      three units: rows [0, 3), [3, 5) and [5, 9)
//
// Outermost level first; each level starts at 0, never descends, and ends at
// the number of units of the next level, the last one at N. An empty list of
// levels is a plain tensor.

#ifndef LODESTAR_TF_OPS_CORE_LOD_H_
#define LODESTAR_TF_OPS_CORE_LOD_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/span.h"
#include "tf_ops/core/status.h"

namespace lodestar {

using LodLevels = std::vector<Span<const int64_t>>;

// InvalidArgument, naming level and index: a level without offsets, a first
// offset that is not 0, an offset below the one before it, a last offset that
// does not meet the next level or `num_rows`.
Status ValidateLod(const LodLevels& levels, int64_t num_rows);

// The offsets of one sequence level called `name`, checked the same way.
Status ValidateSplits(const char* name, Span<const int64_t> splits,
                      int64_t num_rows);

// [0, l0, l0 + l1, ...]. InvalidArgument, naming `level` and the index: a
// negative length, or a sum that does not fit int64.
// REQUIRES: room for one offset more than lengths.
Status LodLengthsToOffsets(int level, Span<const int64_t> lengths,
                           Span<int64_t> offsets);

// Every level in row offsets. REQUIRES: ValidateLod(levels, n), and
// absolute[k] is as long as levels[k].
void AbsoluteLod(const LodLevels& levels,
                 const std::vector<Span<int64_t>>& absolute);

// The inverse. InvalidArgument, naming level and index: a level that does not
// start at 0, descends or ends elsewhere than the last one, or has an offset
// that is not an offset of the next level.
// REQUIRES: relative[k] is as long as absolute[k].
Status RelativeLod(const LodLevels& absolute,
                   const std::vector<Span<int64_t>>& relative);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_LOD_H_
