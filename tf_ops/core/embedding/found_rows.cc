#include "tf_ops/core/embedding/found_rows.h"

#include <algorithm>
#include <utility>

namespace lodestar {

void FoundRows::Keep(FoundBatch batch) {
  if (static_cast<int64_t>(batch.ids.size()) > kMostIds) return;
  {
    MutexLock lock(&mutex_);
    std::swap(batches_[next_], batch);
    next_ = (next_ + 1) % kBatches;
  }
  // Destroys the oldest batch outside of the lock.
}

FoundBatch FoundRows::Take(Span<const int64_t> ids) {
  const size_t count = ids.size();
  FoundBatch taken;
  if (count == 0) return taken;
  {
    MutexLock lock(&mutex_);
    for (int back = 1; back <= kBatches && taken.ids.empty(); ++back) {
      FoundBatch& batch = batches_[(next_ - back + kBatches) % kBatches];
      if (batch.ids.size() == count && batch.ids.front() == ids[0] &&
          batch.ids.back() == ids[count - 1]) {
        std::swap(batch, taken);
      }
    }
  }
  if (!std::equal(taken.ids.begin(), taken.ids.end(), ids.begin())) {
    return FoundBatch();
  }
  return taken;
}

}  // namespace lodestar
