#include "tf_ops/core/table/embedding_rows.h"

#include <algorithm>

#include "tf_ops/core/base/batch_unique.h"

namespace lodestar {
namespace {

// Checks numbers that may be empty.
Status CheckNumbers(const char* name, const NumbersView& numbers,
                    int64_t wanted, RowType type) {
  if (numbers.empty()) return Status();
  LODESTAR_RETURN_IF_ERROR(CheckSize(name, numbers.size(), wanted));
  return CheckType(name, numbers, type);
}

}  // namespace

EmbeddingRowsView View(const EmbeddingRows& rows) {
  EmbeddingRowsView view;
  view.ids = rows.ids;
  view.values = rows.values;
  view.slots = rows.slots;
  view.frequencies = rows.frequencies;
  view.last_seen = rows.last_seen;
  view.optimizer = rows.optimizer;
  view.with_counters = true;
  view.step = rows.step;
  view.seed = rows.seed;
  view.salt = rows.salt;
  view.own_step = rows.own_step;
  view.pending_ids = rows.pending_ids;
  view.pending_sightings = rows.pending_sightings;
  view.pending_last_seen = rows.pending_last_seen;
  view.sketch = rows.sketch;
  view.shared_values = rows.shared_values;
  view.shared_slots = rows.shared_slots;
  return view;
}

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
  const AttachedOptimizer& optimizer = rows.optimizer;
  LODESTAR_RETURN_IF_ERROR(CheckSize("rows", rows.values.size(), count * dim));
  LODESTAR_RETURN_IF_ERROR(CheckType("rows", rows.values, type));
  LODESTAR_RETURN_IF_ERROR(CheckSize("slots", rows.slots.size(),
                                     optimizer.slots().Size(dim) * count));
  if (!rows.slots.empty()) {
    LODESTAR_RETURN_IF_ERROR(CheckType("slots", rows.slots, RowType::kFloat32));
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
  if (optimizer.name.empty() &&
      !(optimizer.slot_names.empty() && optimizer.slot_inits.empty())) {
    return InvalidArgument("`optimizer` is empty, but there are ",
                           optimizer.slot_names.size(), " slot names and ",
                           optimizer.slot_inits.size(), " slot_inits.");
  }
  if (!optimizer.name.empty()) {
    LODESTAR_RETURN_IF_ERROR(optimizer.Check());
  }
  return CheckUnique("ids", rows.ids);
}

Status CheckPending(const EmbeddingRowsView& rows,
                    const AdmissionPolicy& policy) {
  const int64_t count = rows.pending_ids.size();
  LODESTAR_RETURN_IF_ERROR(
      CheckSize("pending_sightings", rows.pending_sightings.size(), count));
  LODESTAR_RETURN_IF_ERROR(
      CheckSize("pending_last_seen", rows.pending_last_seen.size(), count));
  // Without admission there are no pending ids; ignore them.
  if (policy.kind == AdmissionPolicy::Kind::kAll) return Status();
  const bool sketch = policy.kind == AdmissionPolicy::Kind::kCountingBloom;
  for (int64_t i = 0; i < count; ++i) {
    if (rows.pending_sightings[i] < 0 ||
        rows.pending_sightings[i] > 0xffffffffLL) {
      return InvalidArgument("`pending_sightings[", i,
                             "]` must be in [0, 2^32 - 1], got ",
                             rows.pending_sightings[i], ".");
    }
  }
  const int64_t wanted = sketch ? policy.num_counters : 0;
  if (!rows.sketch.empty() && rows.sketch.size() != wanted) {
    return InvalidArgument("`sketch` has ", rows.sketch.size(),
                           " counters, but the table's admission has ", wanted,
                           ".");
  }
  if (sketch && rows.sketch.empty() && count > 0) {
    return InvalidArgument("`pending_ids` has ", count,
                           " ids with exact counts, but the table's admission "
                           "counts in a sketch.");
  }
  LODESTAR_RETURN_IF_ERROR(CheckUnique("pending_ids", rows.pending_ids));
  if (count == 0) return Status();
  std::vector<int64_t> resident(rows.ids.begin(), rows.ids.end());
  std::sort(resident.begin(), resident.end());
  for (int64_t id : rows.pending_ids) {
    if (std::binary_search(resident.begin(), resident.end(), id)) {
      return InvalidArgument("`pending_ids` and `ids` both contain ", id, ".");
    }
  }
  return Status();
}

Status CheckSharedRows(const EmbeddingRowsView& rows, int64_t count,
                       int64_t dim, RowType type) {
  // A table without shared rows ignores them.
  if (count == 0) return Status();
  LODESTAR_RETURN_IF_ERROR(
      CheckNumbers("shared_rows", rows.shared_values, count * dim, type));
  return CheckNumbers("shared_slots", rows.shared_slots,
                      rows.optimizer.slots().Size(dim) * count,
                      RowType::kFloat32);
}

Status MoreThanMaxRows(int64_t rows, int64_t max_rows) {
  return FailedPrecondition("the import makes ", rows,
                            " rows, but `max_rows` of the table is ", max_rows,
                            ".");
}

Status TableIsFull(const TablePolicies& policies, int64_t rows,
                   int64_t new_ids) {
  const std::string& name = policies.table_name;
  return FailedPrecondition(
      name.empty() ? "the table" : StrCat("table '", name, "'"),
      " is full: it has ", rows, " of at most ", policies.eviction.max_rows,
      " rows, and the call has ", new_ids,
      " new ids. Remove rows, raise the limit, or use "
      "MaxRows(when_full='evict'). No row was changed.");
}

}  // namespace lodestar
