// The content of a table, for export and import.

#ifndef LODESTAR_TF_OPS_CORE_TABLE_EMBEDDING_ROWS_H_
#define LODESTAR_TF_OPS_CORE_TABLE_EMBEDDING_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

// All data of N rows, by ascending id.
struct EmbeddingRows {
  std::vector<int64_t> ids;
  Numbers values;  // [N, D], of the table's type
  // [S, N, W] floats; W is D, or 1 for a row-wise optimizer.
  Numbers slots;
  std::vector<int64_t> frequencies;
  std::vector<int64_t> last_seen;
  AttachedOptimizer optimizer;
  int64_t step = 0;
  int64_t seed = 0;
  int64_t salt = 0;
  bool own_step = false;  // the step is set by SetStep
  // Pending ids, ascending, and the sketch that counts them.
  std::vector<int64_t> pending_ids;
  std::vector<int64_t> pending_sightings;
  std::vector<int64_t> pending_last_seen;
  std::vector<uint8_t> sketch;
  Numbers shared_values;  // [R, D], shared rows
  Numbers shared_slots;   // [S, R, W]
};

// Views of the same data, in any order of ids.
struct EmbeddingRowsView {
  Span<const int64_t> ids;
  NumbersView values;
  NumbersView slots;  // empty: rows without optimizer slots
  Span<const int64_t> frequencies;
  Span<const int64_t> last_seen;
  AttachedOptimizer optimizer;
  bool with_counters = false;  // step, seed, salt and own_step are set
  int64_t step = 0;
  int64_t seed = 0;
  int64_t salt = 0;
  bool own_step = false;
  Span<const int64_t> pending_ids;
  Span<const int64_t> pending_sightings;
  Span<const int64_t> pending_last_seen;
  Span<const uint8_t> sketch;
  NumbersView shared_values;  // empty: keep the shared rows
  NumbersView shared_slots;
};

// Returns a view that imports everything again.
EmbeddingRowsView View(const EmbeddingRows& rows);

// Returns InvalidArgument for arrays that do not fit this dim and type or each
// other, frequencies out of range, an invalid optimizer, or a repeated id.
Status CheckRowsView(const EmbeddingRowsView& rows, int64_t dim, RowType type);

// Checks pending ids and the sketch. Returns InvalidArgument if they are
// invalid or belong to another kind of admission.
Status CheckPending(const EmbeddingRowsView& rows,
                    const AdmissionPolicy& policy);
// Returns InvalidArgument for another number or type of shared rows.
Status CheckSharedRows(const EmbeddingRowsView& rows, int64_t count,
                       int64_t dim, RowType type);

// Return InvalidArgument unless argument `name` has `wanted` elements, and
// unless its ids are unique, respectively.
Status CheckSize(const char* name, int64_t found, int64_t wanted);
Status CheckUnique(const char* name, Span<const int64_t> ids);
// FailedPrecondition for an import that exceeds the table's cap.
Status MoreThanMaxRows(int64_t rows, int64_t max_rows);
// FailedPrecondition for new ids in a table that raises when it is full.
Status TableIsFull(const TablePolicies& policies, int64_t rows,
                   int64_t new_ids);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_TABLE_EMBEDDING_ROWS_H_
