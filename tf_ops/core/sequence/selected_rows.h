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
Status ValidateSelectedRows(Span<const int64_t> rows, int64_t num_values,
                            int64_t height);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SELECTED_ROWS_H_
