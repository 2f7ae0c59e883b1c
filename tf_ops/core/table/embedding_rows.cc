#include "tf_ops/core/table/embedding_rows.h"

#include "tf_ops/core/base/batch_unique.h"

namespace lodestar {

Status CheckSize(const char* name, int64_t found, int64_t wanted) {
  if (found == wanted) return Status();
  return InvalidArgument("`", name, "` must have ", wanted, " elements, got ",
                         found, ".");
}

Status CheckUnique(const char* name, Span<const int64_t> ids) {
  std::vector<int64_t> unique;
  std::vector<int64_t> positions(ids.size());
  BatchUnique(ids, nullptr, &unique, positions);
  for (int64_t i = 0; i < ids.size(); ++i) {
    // The first repeated id is the first whose position differs.
    if (positions[i] != i) {
      return InvalidArgument("`", name, "` contains ", ids[i], " twice, at ",
                             positions[i], " and ", i, ".");
    }
  }
  return Status();
}

Status CheckRowsView(const EmbeddingRowsView& rows, int64_t dim, RowType type) {
  const int64_t count = rows.ids.size();
  const int64_t num_slots = rows.optimizer.slot_inits.size();
  LODESTAR_RETURN_IF_ERROR(CheckSize("rows", rows.values.size(), count * dim));
  LODESTAR_RETURN_IF_ERROR(CheckType("rows", rows.values, type));
  LODESTAR_RETURN_IF_ERROR(
      CheckSize("slots", rows.slots.size(), num_slots * count * dim));
  if (!rows.slots.empty()) {
    LODESTAR_RETURN_IF_ERROR(CheckType("slots", rows.slots, ComputeType(type)));
  }
  LODESTAR_RETURN_IF_ERROR(
      CheckSize("frequencies", rows.frequencies.size(), count));
  LODESTAR_RETURN_IF_ERROR(
      CheckSize("last_seen", rows.last_seen.size(), count));
  for (int64_t i = 0; i < count; ++i) {
    if (rows.frequencies[i] < 0 || rows.frequencies[i] > 0xffffffffLL) {
      return InvalidArgument("`frequencies[", i,
                             "]` must be in [0, 2^32 - 1], got ",
                             rows.frequencies[i], ".");
    }
  }
  const AttachedOptimizer& optimizer = rows.optimizer;
  if (optimizer.name.empty() &&
      !(optimizer.slot_names.empty() && optimizer.slot_inits.empty())) {
    return InvalidArgument("`optimizer` is empty, but there are ",
                           optimizer.slot_names.size(), " slot names and ",
                           num_slots, " slot_inits.");
  }
  if (!optimizer.name.empty()) {
    LODESTAR_RETURN_IF_ERROR(optimizer.Check());
  }
  return CheckUnique("ids", rows.ids);
}

Status MoreThanMaxRows(int64_t rows, int64_t max_rows) {
  return FailedPrecondition("the import makes ", rows,
                            " rows, but `max_rows` of the table is ", max_rows,
                            ".");
}

}  // namespace lodestar
