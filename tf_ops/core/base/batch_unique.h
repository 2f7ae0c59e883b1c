// The distinct ids of a batch, in order of first occurrence.

#ifndef LODESTAR_TF_OPS_CORE_BASE_BATCH_UNIQUE_H_
#define LODESTAR_TF_OPS_CORE_BASE_BATCH_UNIQUE_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/span.h"

namespace lodestar {

// Positions of padding.
constexpr int64_t kNoPosition = -1;

// Fills `unique` and, for each id, its position in `unique` (kNoPosition for
// *padding_id where that is given).
// REQUIRES: positions.size() == ids.size().
void BatchUnique(Span<const int64_t> ids, const int64_t* padding_id,
                 std::vector<int64_t>* unique, Span<int64_t> positions);

// How often each of `num_unique` ids occurs in the batch; at most 2^32 - 1.
// REQUIRES: positions as BatchUnique filled them.
std::vector<uint32_t> CountOccurrences(Span<const int64_t> positions,
                                       int64_t num_unique);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_BATCH_UNIQUE_H_
