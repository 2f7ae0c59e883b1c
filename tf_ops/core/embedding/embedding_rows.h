// The content of a table on its way out or in.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_ROWS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_ROWS_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// Everything of N rows, ascending ids.
struct EmbeddingRows {
  std::vector<int64_t> ids;
  Numbers values;  // [N, D], of the table's type
  Numbers slots;   // [S, N, D], of the type that rows are computed as
  std::vector<int64_t> frequencies;
  std::vector<int64_t> last_seen;
  AttachedOptimizer optimizer;
  int64_t step = 0;
  int64_t seed = 0;
  int64_t salt = 0;
  bool own_step = false;  // SetStep drives the step
  // Ids that wait for a row, ascending, and the sketch that counts them.
  std::vector<int64_t> pending_ids;
  std::vector<int64_t> pending_sightings;
  std::vector<int64_t> pending_last_seen;
  std::vector<uint8_t> sketch;
  Numbers shared_values;  // [R, D], shared rows
  Numbers shared_slots;   // [S, R, D]
};

// The same as views, in any order of ids.
struct EmbeddingRowsView {
  Span<const int64_t> ids;
  NumbersView values;
  NumbersView slots;  // empty: rows without optimizer slots
  Span<const int64_t> frequencies;
  Span<const int64_t> last_seen;
  AttachedOptimizer optimizer;
  bool with_counters = false;  // step, seed, salt and own_step are given
  int64_t step = 0;
  int64_t seed = 0;
  int64_t salt = 0;
  bool own_step = false;
  Span<const int64_t> pending_ids;
  Span<const int64_t> pending_sightings;
  Span<const int64_t> pending_last_seen;
  Span<const uint8_t> sketch;
  NumbersView shared_values;  // empty: shared rows stay as they are
  NumbersView shared_slots;
};

// InvalidArgument: numbers that do not fit a table of this dim and type, or
// each other; frequencies out of range; an optimizer that is none; an id twice.
Status CheckRowsView(const EmbeddingRowsView& rows, int64_t dim, RowType type);

// InvalidArgument unless the argument `name` has `wanted` numbers, or holds no
// id twice.
Status CheckSize(const char* name, int64_t found, int64_t wanted);
Status CheckDistinct(const char* name, Span<const int64_t> ids);
// FailedPrecondition: an import into a table with a cap.
Status MoreThanMaxRows(int64_t rows, int64_t max_rows);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_ROWS_H_
