// Level-of-detail offsets: nested sequences over N rows.
//
//   level 0  0 2 3        two units: entries [0, 2) and [2, 3) of level 1
//   level 1  0 3 5 9      three units: rows [0, 3), [3, 5) and [5, 9)
//
// Outermost level first; each level starts at 0, never descends, and ends at
// the number of units of the next level, the last one at N. An empty list of
// levels is a plain tensor.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_LOD_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_LOD_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

using LodLevels = std::vector<Span<const int64_t>>;

// InvalidArgument, naming level and index: a level without offsets, a first
// offset that is not 0, an offset below the one before it, a last offset that
// does not meet the next level or `num_rows`.
Status ValidateLod(const LodLevels& levels, int64_t num_rows);

// The offsets of one sequence level called `name`, checked the same way.
Status ValidateSplits(const char* name, Span<const int64_t> splits,
                      int64_t num_rows);

// The most that lengths may be where they may be anything.
constexpr int64_t kAnyLength = std::numeric_limits<int64_t>::max();

// [0, l0, l0 + l1, ...] of the lengths called `name`. InvalidArgument, naming
// the index: a length that is not in [0, most], or a sum that does not fit
// int64.
// REQUIRES: room for one offset more than lengths.
Status LengthsToOffsets(const std::string& name, Span<const int64_t> lengths,
                        int64_t most, Span<int64_t> offsets);

// Every level in row offsets. REQUIRES: ValidateLod(levels, n), and
// absolute[k] is as long as levels[k].
void AbsoluteLod(const LodLevels& levels,
                 const std::vector<Span<int64_t>>& absolute);

// The inverse. InvalidArgument, naming level and index: a level that does not
// start at 0, descends or ends elsewhere than the last one, has an offset that
// is not an offset of the next level, or no unit for those of the next level.
// REQUIRES: relative[k] is as long as absolute[k].
Status RelativeLod(const LodLevels& absolute,
                   const std::vector<Span<int64_t>>& relative);

struct LodRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Units [begin, end) of levels[level] and what they hold: ranges[j] becomes the
// units of level `level` + j, and the last range, one more than levels, rows.
// InvalidArgument, naming index and value: not 0 <= begin <= end <= units, or
// offsets among those of the units that descend or lie outside of what they
// index. Other offsets are not read.
// REQUIRES: 0 <= level < levels.size().
Status SliceLod(const LodLevels& levels, int64_t num_rows, int64_t level,
                int64_t begin, int64_t end, std::vector<LodRange>* ranges);

// The levels of a sparse tensor, one less than it has dimensions. `indices` is
// row-major, dense_shape.size() numbers a value. Level 0 has dense_shape[0]
// units; a unit of an upper level holds as many as its last index says, those
// without values being empty. With `drop_columns` the last number of an index
// only orders the values of a unit.
// InvalidArgument, naming index and value: a negative dimension, an index
// outside of its dimension, indices that repeat or are not in row-major order,
// values of a unit that do not stand side by side from 0 where columns are not
// dropped.
// ResourceExhausted: more units than memory has addresses.
// REQUIRES: dense_shape.size() >= 2, and it divides indices.size().
Status LodFromSparse(Span<const int64_t> indices,
                     Span<const int64_t> dense_shape, bool drop_columns,
                     std::vector<std::vector<int64_t>>* levels);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_LOD_H_
