// Selected rows: values of some rows of a tall tensor of `height` rows. A row
// may be there more than once, which means the sum.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SELECTED_ROWS_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SELECTED_ROWS_H_

#include <cstdint>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

// InvalidArgument, naming index and value: another number of rows than values,
// a negative height, a row outside of [0, height).
Status ValidateSelectedRows(Span<const int64_t> rows, int64_t num_values,
                            int64_t height);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SELECTED_ROWS_H_
