#include "tf_ops/core/lod.h"

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
                           std::vector<int64_t>* offsets) {
  offsets->assign(1, 0);
  offsets->reserve(lengths.size() + 1);
  for (int64_t i = 0; i < lengths.size(); ++i) {
    const int64_t end = offsets->back();
    if (lengths[i] < 0) {
      return InvalidArgument("`lengths[", level, "][", i, "]` is ", lengths[i],
                             ", wanted 0 or more");
    }
    if (lengths[i] > std::numeric_limits<int64_t>::max() - end) {
      return InvalidArgument("`lengths[", level,
                             "]` has a sum beyond int64 at ", i);
    }
    offsets->push_back(end + lengths[i]);
  }
  return Status();
}

std::vector<std::vector<int64_t>> AbsoluteLod(const LodLevels& levels) {
  std::vector<std::vector<int64_t>> absolute(levels.size());
  for (size_t k = levels.size(); k-- > 0;) {
    for (int64_t offset : levels[k]) {
      absolute[k].push_back(k + 1 == levels.size() ? offset
                                                   : absolute[k + 1][offset]);
    }
  }
  return absolute;
}

Status RelativeLod(const LodLevels& absolute,
                   std::vector<std::vector<int64_t>>* relative) {
  relative->assign(absolute.size(), {});
  for (size_t k = 0; k < absolute.size(); ++k) {
    if (k + 1 == absolute.size()) {
      (*relative)[k].assign(absolute[k].begin(), absolute[k].end());
      continue;
    }
    const Span<const int64_t>& next = absolute[k + 1];
    int64_t unit = 0;
    for (int64_t i = 0; i < absolute[k].size(); ++i) {
      const int64_t offset = absolute[k][i];
      // The first match after the last one: an empty unit of the next level
      // belongs to the unit that comes after it.
      while (unit < next.size() && next[unit] < offset) ++unit;
      if (unit == next.size() || next[unit] != offset) {
        return InvalidArgument("`lod[", k, "][", i, "]`=", offset,
                               " is not an offset of `lod[", k + 1, "]`");
      }
      // The last offset takes the empty units at the end.
      if (i + 1 == absolute[k].size()) unit = next.size() - 1;
      (*relative)[k].push_back(unit);
    }
  }
  return Status();
}

}  // namespace lodestar
