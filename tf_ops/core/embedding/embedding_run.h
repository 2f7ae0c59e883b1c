// Ids that are probed together, and what a row costs to fetch.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_RUN_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_RUN_H_

#include <cstdint>

namespace lodestar {

// Enough misses in flight to hide memory, few enough to stay in the first
// cache.
constexpr int kRun = 32;

// How far ahead rows are loaded where it is known which ones.
constexpr int64_t kAhead = 16;

// The widest row.
constexpr int kMaxDim = 65536;
// Columns of a row that are computed at a time: threads may have small stacks.
constexpr int kPart = 1024;

// Guesses of the nanoseconds to find one row, and to find and copy it.
constexpr int64_t kFindCost = 40;
inline int64_t RowCost(int dim) { return kFindCost + dim; }

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_RUN_H_
