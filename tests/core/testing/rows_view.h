// Imports and reads of exported rows.

#ifndef LODESTAR_TESTS_CORE_TESTING_ROWS_VIEW_H_
#define LODESTAR_TESTS_CORE_TESTING_ROWS_VIEW_H_

#include <memory>
#include <utility>
#include <vector>

#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

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
