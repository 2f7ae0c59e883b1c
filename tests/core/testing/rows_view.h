// A view of exported rows that imports everything again.

#ifndef LODESTAR_TESTS_CORE_TESTING_ROWS_VIEW_H_
#define LODESTAR_TESTS_CORE_TESTING_ROWS_VIEW_H_

#include <memory>
#include <utility>
#include <vector>

#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

inline EmbeddingRowsView View(const EmbeddingRows& rows) {
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

// A replacing import: replaces *store by a table of these rows.
template <typename Store>
Status ImportInPlaceOf(Store* store, const EmbeddingRowsView& rows,
                       const ParallelFor* parallel = nullptr) {
  std::unique_ptr<EmbeddingStore> table;
  LODESTAR_RETURN_IF_ERROR(
      EmbeddingStore::CreateFrom(rows, **store, parallel, &table));
  *store = std::move(table);
  return Status();
}

inline std::vector<float> Floats(const Numbers& numbers) {
  const Span<const float> all = numbers.as<float>();
  return {all.begin(), all.end()};
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_ROWS_VIEW_H_
