// Caches the rows found by recent lookups, so that the update that follows need
// not search for them or deduplicate its ids again.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_FOUND_ROWS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_FOUND_ROWS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/embedding/sharded_rows.h"

namespace lodestar {

// Unique ids and the row, if any, that each had when it was looked up. The row
// may have moved or been removed since; RowStore::Lock confirms it.
struct FoundBatch {
  std::vector<int64_t> ids;
  std::vector<RowRef> refs;
};

// Thread-safe.
class FoundRows {
 public:
  // Number of batches kept. With more concurrent callers, updates search again.
  // A lookup without an update occupies an entry until it is replaced.
  static constexpr int kBatches = 8;
  static constexpr int64_t kMostIds = int64_t{1} << 18;

  // Replaces the oldest batch.
  void Keep(FoundBatch batch);
  // Removes and returns the newest batch of exactly these ids; or an empty
  // batch.
  FoundBatch Take(Span<const int64_t> ids);

 private:
  Mutex mutex_;
  std::array<FoundBatch, kBatches> batches_ LODESTAR_GUARDED_BY(mutex_);
  int next_ LODESTAR_GUARDED_BY(mutex_) = 0;  // index of the oldest batch
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_FOUND_ROWS_H_
