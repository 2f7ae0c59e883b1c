#include "tf_ops/core/sequence/selected_rows.h"

namespace lodestar {

Status ValidateSelectedRows(Span<const int64_t> rows, int64_t num_values,
                            int64_t height) {
  if (rows.size() != num_values) {
    return InvalidArgument("`rows` has ", rows.size(),
                           " elements, but there are ", num_values, " values.");
  }
  if (height < 0) {
    return InvalidArgument("`height` must be at least 0, got ", height, ".");
  }
  for (int64_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= height) {
      return InvalidArgument("`rows[", i, "]` must be in [0, ", height,
                             "), got ", rows[i], ".");
    }
  }
  return Status();
}

}  // namespace lodestar
