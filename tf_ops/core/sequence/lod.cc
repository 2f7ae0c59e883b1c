#include "tf_ops/core/sequence/lod.h"

#include <algorithm>
#include <limits>
#include <string>

namespace lodestar {
namespace {

// `name` is the name used in messages, e.g. `lod[1]`.
Status ValidateLevel(const std::string& name, Span<const int64_t> offsets,
                     int64_t wanted_end, const std::string& what_end) {
  if (offsets.empty()) {
    return InvalidArgument("`", name,
                           "` is empty, but must have at least one offset.");
  }
  if (offsets[0] != 0) {
    return InvalidArgument("`", name, "[0]` must be 0, got ", offsets[0], ".");
  }
  for (int64_t i = 0; i + 1 < offsets.size(); ++i) {
    if (offsets[i] > offsets[i + 1]) {
      return InvalidArgument("`", name, "[", i, "]`=", offsets[i],
                             " is greater than `", name, "[", i + 1,
                             "]`=", offsets[i + 1], ".");
    }
  }
  const int64_t end = offsets[offsets.size() - 1];
  if (end != wanted_end) {
    return InvalidArgument("`", name, "` ends at ", end, ", but there are ",
                           wanted_end, " ", what_end, ".");
  }
  return Status();
}

}  // namespace

Status ValidateLod(const LodLevels& levels, int64_t num_rows) {
  for (size_t k = 0; k < levels.size(); ++k) {
    const bool last = k + 1 == levels.size();
    // An empty next level is reported by its own iteration.
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

Status LengthsToOffsets(const std::string& name, Span<const int64_t> lengths,
                        int64_t most, Span<int64_t> offsets) {
  int64_t end = 0;
  offsets[0] = 0;
  for (int64_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > most) {
      return InvalidArgument(
          "`", name, "[", i, "]` must be ",
          most == kAnyLength ? "at least 0" : StrCat("in [0, ", most, "]"),
          ", got ", lengths[i], ".");
    }
    if (lengths[i] > std::numeric_limits<int64_t>::max() - end) {
      return InvalidArgument("`", name, "[", i, "]` is ", lengths[i],
                             ", so the sum overflows int64.");
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
  // Last level first, since it defines the end of the others.
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
    if (absolute[k].size() == 1 && next.size() > 1) {
      return InvalidArgument("`lod[", k, "]` has no unit, but there are ",
                             next.size() - 1, " units in `lod[", k + 1, "]`.");
    }
    int64_t unit = 0;
    for (int64_t i = 0; i < absolute[k].size(); ++i) {
      const int64_t offset = absolute[k][i];
      // Take the first match after the previous one: an empty unit of the next
      // level belongs to the unit that follows it. Both levels have the same
      // end, so the loop terminates.
      while (next[unit] < offset) ++unit;
      if (next[unit] != offset) {
        return InvalidArgument("`lod[", k, "][", i, "]`=", offset,
                               " is not an offset of `lod[", k + 1, "]`.");
      }
      // Empty units at the end belong to the last unit.
      if (i + 1 == absolute[k].size()) unit = next.size() - 1;
      relative[k][i] = unit;
    }
  }
  return Status();
}

Status SliceLod(const LodLevels& levels, int64_t num_rows, int64_t level,
                int64_t begin, int64_t end, std::vector<LodRange>* ranges) {
  const auto units = [&](int64_t k) {
    return k == static_cast<int64_t>(levels.size()) ? num_rows
                                                    : levels[k].size() - 1;
  };
  if (levels[level].empty()) {
    return InvalidArgument("`lod[", level,
                           "]` is empty, but must have at least one offset.");
  }
  if (begin < 0) {
    return InvalidArgument("`begin` must be at least 0, got ", begin, ".");
  }
  if (begin > end) {
    return InvalidArgument("`begin`=", begin, " is greater than `end`=", end,
                           ".");
  }
  if (end > units(level)) {
    return InvalidArgument("`end` is ", end, ", but there are ", units(level),
                           " units in `lod[", level, "]`.");
  }
  ranges->assign(1, {begin, end});
  for (int64_t k = level; k < static_cast<int64_t>(levels.size()); ++k) {
    const Span<const int64_t>& offsets = levels[k];
    for (int64_t i = begin; i < end; ++i) {
      if (offsets[i] > offsets[i + 1]) {
        return InvalidArgument("`lod[", k, "][", i, "]`=", offsets[i],
                               " is greater than `lod[", k, "][", i + 1,
                               "]`=", offsets[i + 1], ".");
      }
    }
    // An empty level has -1 units, so that every offset is out of range.
    const int64_t limit = units(k + 1);
    for (const int64_t i : {begin, end}) {
      if (offsets[i] < 0 || offsets[i] > limit) {
        return InvalidArgument("`lod[", k, "][", i, "]` must be in [0, ", limit,
                               "], got ", offsets[i], ".");
      }
    }
    const LodRange below = {offsets[begin], offsets[end]};
    ranges->push_back(below);
    begin = below.begin;
    end = below.end;
  }
  return Status();
}

Status LodFromSparse(Span<const int64_t> indices,
                     Span<const int64_t> dense_shape, bool drop_columns,
                     std::vector<std::vector<int64_t>>* levels) {
  const int64_t rank = dense_shape.size();
  const int64_t last = rank - 1;
  for (int64_t d = 0; d < rank; ++d) {
    if (dense_shape[d] < 0) {
      return InvalidArgument("`dense_shape[", d, "]` must be at least 0, got ",
                             dense_shape[d], ".");
    }
  }
  levels->assign(last, {});
  int64_t rows = 0;
  const auto begun = [&](int64_t k) {
    return k == last ? rows : static_cast<int64_t>((*levels)[k].size());
  };
  // Begins `count` units of level k. All but the last one stay empty.
  const auto begin_units = [&](int64_t k, int64_t count) {
    std::vector<int64_t>& level = (*levels)[k];
    // Reserves one element for the end of the last unit.
    if (static_cast<uint64_t>(count) >= level.max_size() - level.size()) {
      return ResourceExhausted("`lod[", k, "]` would have ", count,
                               " units more than ", level.size(), ".");
    }
    level.insert(level.end(), count, begun(k + 1));
    return Status();
  };
  const int64_t* before = nullptr;
  for (; rows < indices.size() / rank; ++rows) {
    const int64_t* index = indices.data() + rows * rank;
    for (int64_t d = 0; d < rank; ++d) {
      if (index[d] < 0 || index[d] >= dense_shape[d]) {
        return InvalidArgument("`indices[", rows, "][", d, "]` must be in [0, ",
                               dense_shape[d], "), got ", index[d], ".");
      }
    }
    // The first dimension in which this index differs from the previous one.
    int64_t moved = 0;
    while (before != nullptr && moved < rank && index[moved] == before[moved]) {
      ++moved;
    }
    if (moved == rank) {
      return InvalidArgument("`indices[", rows, "]` repeats `indices[",
                             rows - 1, "]`.");
    }
    const int64_t from = before == nullptr ? -1 : before[moved];
    if (index[moved] < from) {
      return InvalidArgument("`indices[", rows, "][", moved, "]` is ",
                             index[moved], " after ", from,
                             ". Indices must be in row-major order.");
    }
    for (int64_t k = moved; k < last; ++k) {
      LODESTAR_RETURN_IF_ERROR(
          begin_units(k, index[k] - (k == moved ? from : -1)));
    }
    const int64_t wanted = moved == last ? from + 1 : 0;
    if (!drop_columns && index[last] != wanted) {
      return InvalidArgument("`indices[", rows, "][", last, "]` must be ",
                             wanted, ", got ", index[last],
                             ". The values of a unit must be contiguous.");
    }
    before = index;
  }
  LODESTAR_RETURN_IF_ERROR(begin_units(0, dense_shape[0] - begun(0)));
  for (int64_t k = 0; k < last; ++k) (*levels)[k].push_back(begun(k + 1));
  return Status();
}

}  // namespace lodestar
