// Selected rows: values of some rows of a tensor with `height` rows. Values of
// repeated rows are summed.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SELECTED_ROWS_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SELECTED_ROWS_H_

#include <cstdint>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

// Returns InvalidArgument, with index and value, if the numbers of rows and
// values differ, the height is negative, or a row is not in [0, height).
inline Status ValidateSelectedRows(Span<const int64_t> rows, int64_t num_values,
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

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SELECTED_ROWS_H_
