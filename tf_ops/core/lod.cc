#include "tf_ops/core/lod.h"

#include <algorithm>
#include <limits>
#include <string>

namespace lodestar {
namespace {

// `name` as it is printed in messages, e.g. `lod[1]`.
Status ValidateLevel(const std::string& name, Span<const int64_t> offsets,
                     int64_t wanted_end, const std::string& what_end) {
  if (offsets.empty()) {
    return InvalidArgument("`", name, "` is empty, wanted at least one offset");
  }
  if (offsets[0] != 0) {
    return InvalidArgument("`", name, "[0]` is ", offsets[0], ", wanted 0");
  }
  for (int64_t i = 0; i + 1 < offsets.size(); ++i) {
    if (offsets[i] > offsets[i + 1]) {
      return InvalidArgument("`", name, "[", i, "]`=", offsets[i],
                             " is greater than `", name, "[", i + 1,
                             "]`=", offsets[i + 1]);
    }
  }
  const int64_t end = offsets[offsets.size() - 1];
  if (end != wanted_end) {
    return InvalidArgument("`", name, "` ends at ", end, ", but there are ",
                           wanted_end, " ", what_end);
  }
  return Status();
}

}  // namespace

Status ValidateLod(const LodLevels& levels, int64_t num_rows) {
  for (size_t k = 0; k < levels.size(); ++k) {
    const bool last = k + 1 == levels.size();
    // A next level that is empty is reported as such, when its turn comes.
    if (!last && levels[k + 1].empty()) continue;
    const int64_t end = last ? num_rows : levels[k + 1].size() - 1;
    LODESTAR_RETURN_IF_ERROR(ValidateLevel(
        StrCat("lod[", k, "]"), levels[k], end,
        last ? std::string("rows") : StrCat("units in `lod[", k + 1, "]`")));
  }
  return Status();
}

Status ValidateSplits(const char* name, Span<const int64_t> splits,
                      int64_t num_rows) {
  return ValidateLevel(name, splits, num_rows, "rows");
}

Status LodLengthsToOffsets(int level, Span<const int64_t> lengths,
                           Span<int64_t> offsets) {
  int64_t end = 0;
  offsets[0] = 0;
  for (int64_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) {
      return InvalidArgument("`lengths[", level, "][", i, "]` is ", lengths[i],
                             ", wanted 0 or more");
    }
    if (lengths[i] > std::numeric_limits<int64_t>::max() - end) {
      return InvalidArgument("`lengths[", level, "][", i, "]` is ", lengths[i],
                             ", which takes the sum beyond int64");
    }
    end += lengths[i];
    offsets[i + 1] = end;
  }
  return Status();
}

void AbsoluteLod(const LodLevels& levels,
                 const std::vector<Span<int64_t>>& absolute) {
  for (size_t k = levels.size(); k-- > 0;) {
    for (int64_t i = 0; i < levels[k].size(); ++i) {
      absolute[k][i] =
          k + 1 == levels.size() ? levels[k][i] : absolute[k + 1][levels[k][i]];
    }
  }
}

Status RelativeLod(const LodLevels& absolute,
                   const std::vector<Span<int64_t>>& relative) {
  if (absolute.empty()) return Status();
  const Span<const int64_t>& rows = absolute.back();
  const int64_t num_rows = rows.empty() ? 0 : rows[rows.size() - 1];
  // The last level first: it says where the others have to end.
  for (size_t k = absolute.size(); k-- > 0;) {
    LODESTAR_RETURN_IF_ERROR(
        ValidateLevel(StrCat("lod[", k, "]"), absolute[k], num_rows,
                      StrCat("rows in `lod[", absolute.size() - 1, "]`")));
  }
  for (size_t k = 0; k < absolute.size(); ++k) {
    if (k + 1 == absolute.size()) {
      std::copy(absolute[k].begin(), absolute[k].end(), relative[k].begin());
      continue;
    }
    const Span<const int64_t>& next = absolute[k + 1];
    int64_t unit = 0;
    for (int64_t i = 0; i < absolute[k].size(); ++i) {
      const int64_t offset = absolute[k][i];
      // The first match after the last one: an empty unit of the next level
      // belongs to the unit that comes after it. Both levels end alike, so
      // there is an offset as large.
      while (next[unit] < offset) ++unit;
      if (next[unit] != offset) {
        return InvalidArgument("`lod[", k, "][", i, "]`=", offset,
                               " is not an offset of `lod[", k + 1, "]`");
      }
      // The last offset takes the empty units at the end.
      if (i + 1 == absolute[k].size()) unit = next.size() - 1;
      relative[k][i] = unit;
    }
  }
  return Status();
}

}  // namespace lodestar
