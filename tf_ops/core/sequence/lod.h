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
#include <limits>
#include <string>
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

// The upper bound of lengths that are not bounded.
constexpr int64_t kAnyLength = std::numeric_limits<int64_t>::max();

// Sets offsets to [0, l0, l0 + l1, ...] for the lengths called `name`. Returns
// InvalidArgument, with the index, if a length is not in [0, most] or the sum
// overflows int64. Requires: offsets.size() == lengths.size() + 1.
Status LengthsToOffsets(const std::string& name, Span<const int64_t> lengths,
                        int64_t most, Span<int64_t> offsets);

// Converts every level to row offsets. Requires: ValidateLod(levels, n);
// absolute[k] has the size of levels[k].
void AbsoluteLod(const LodLevels& levels,
                 const std::vector<Span<int64_t>>& absolute);

// The inverse of AbsoluteLod. Returns InvalidArgument, with level and index, if
// a level does not start at 0, decreases, ends at another row than the last
// level, has an offset that is not an offset of the next level, or has no unit
// for the units of the next level. Requires: relative[k] has the size of
// absolute[k].
Status RelativeLod(const LodLevels& absolute,
                   const std::vector<Span<int64_t>>& relative);

struct LodRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Sets ranges[j] to the units of level `level` + j that are contained in units
// [begin, end) of levels[level], and the last range, one more than levels, to
// their rows. Returns InvalidArgument, with index and value, unless 0 <= begin
// <= end <= units, or if the offsets of these units decrease or are out of
// range. Does not read other offsets. Requires: 0 <= level < levels.size().
Status SliceLod(const LodLevels& levels, int64_t num_rows, int64_t level,
                int64_t begin, int64_t end, std::vector<LodRange>* ranges);

// Returns the levels of a sparse tensor, one fewer than its dimensions.
// `indices` is row-major with dense_shape.size() values per entry. Level 0 has
// dense_shape[0] units. A unit of an upper level has as many units as its last
// index requires; units without entries are empty. With `drop_columns`, the
// last index only orders the entries of a unit. Returns InvalidArgument, with
// index and value, if a dimension is negative, an index is out of range,
// indices repeat or are not in row-major order, or, without `drop_columns`, the
// entries of a unit are not contiguous from 0. Returns ResourceExhausted if
// there are too many units to allocate. Requires: dense_shape.size() >= 2; it
// divides indices.size().
Status LodFromSparse(Span<const int64_t> indices,
                     Span<const int64_t> dense_shape, bool drop_columns,
                     std::vector<std::vector<int64_t>>* levels);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_LOD_H_
