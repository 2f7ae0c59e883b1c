// Where the rows of recent lookups lie: the update that follows one need not
// search for them again, nor make sure that its ids are distinct.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_FOUND_ROWS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_FOUND_ROWS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/embedding/sharded_rows.h"

namespace lodestar {

// Distinct ids, and the row that each had, if any, when it was looked up. It
// may have gone or moved since: who uses a place confirms it (RowStore::Lock).
struct FoundBatch {
  std::vector<int64_t> ids;
  std::vector<RowRef> refs;
};

// Thread-safe.
class FoundRows {
 public:
  // More callers than this at a time search again, and so do larger batches:
  // a lookup that no update follows stays here.
  static constexpr int kBatches = 8;
  static constexpr int64_t kMostIds = int64_t{1} << 18;

  // In place of the oldest.
  void Keep(FoundBatch batch);
  // The newest batch of just these ids, which is then forgotten; empty: none is
  // known.
  FoundBatch Take(Span<const int64_t> ids);

 private:
  Mutex mutex_;
  std::array<FoundBatch, kBatches> batches_ LODESTAR_GUARDED_BY(mutex_);
  int next_ LODESTAR_GUARDED_BY(mutex_) = 0;  // where the oldest is
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_FOUND_ROWS_H_
