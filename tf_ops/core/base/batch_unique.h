// Deduplicates the ids of a batch, in order of first occurrence.

#ifndef LODESTAR_TF_OPS_CORE_BASE_BATCH_UNIQUE_H_
#define LODESTAR_TF_OPS_CORE_BASE_BATCH_UNIQUE_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/span.h"

namespace lodestar {

// Position of a padding id.
constexpr int64_t kNoPosition = -1;

// Fills `unique` and, for each id, its position in `unique`. Ids equal to
// *padding_id get kNoPosition; a null `padding_id` means no padding. Requires:
// positions.size() == ids.size().
void BatchUnique(Span<const int64_t> ids, const int64_t* padding_id,
                 std::vector<int64_t>* unique, Span<int64_t> positions);

// Returns the number of occurrences of each of `num_unique` ids, at most 2^32 -
// 1. Requires: `positions` as filled by BatchUnique.
std::vector<uint32_t> CountOccurrences(Span<const int64_t> positions,
                                       int64_t num_unique);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_BATCH_UNIQUE_H_
