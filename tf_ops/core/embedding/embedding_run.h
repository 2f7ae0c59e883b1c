// Batch sizes and cost estimates of lookups.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_RUN_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_RUN_H_

#include <cstdint>

namespace lodestar {

// Number of ids probed together: enough misses in flight to hide memory
// latency, and few enough prefetches to wait for no free line fill buffer.
constexpr int kRun = 16;

// Prefetch distance where the rows are already known.
constexpr int64_t kAhead = 16;

// Columns of a row computed at a time, because threads may have small stacks.
constexpr int kPart = 1024;

// Estimated nanoseconds to find one row, and to find and copy it.
constexpr int64_t kFindCost = 40;
inline int64_t RowCost(int dim) { return kFindCost + dim; }

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_RUN_H_
