#include "tf_ops/core/sequence/lod.h"

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

Status LengthsToOffsets(const char* name, Span<const int64_t> lengths,
                        int64_t most, Span<int64_t> offsets) {
  int64_t end = 0;
  offsets[0] = 0;
  for (int64_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > most) {
      return InvalidArgument("`", name, "[", i, "]` must be in [0, ", most,
                             "], got ", lengths[i], ".");
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

}  // namespace lodestar
