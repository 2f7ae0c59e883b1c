// Pooled look-ups: bags of ids -> one row each, without the unpooled rows.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_POOL_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_POOL_H_

#include <cstdint>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

// B bags over N ids: bag b holds ids [row_splits[b], row_splits[b + 1]).
// Padding ids take no part in anything. Weights go with sum, mean
// (sum(w x) / sum(w)) and sqrtn (sum(w x) / sqrt(sum(w^2))) only; a divisor of
// zero gives zeros. An empty bag is zeros, or *default_id's row.
struct Bags {
  Span<const int64_t> ids;
  Span<const int64_t> row_splits;
  Span<const float> weights;  // empty: all 1
  Combiner combiner = Combiner::kSum;
  const int64_t* padding_id = nullptr;
  const int64_t* default_id = nullptr;

  int64_t size() const { return row_splits.size() - 1; }
};

// InvalidArgument: splits that do not start at 0, descend, or do not end at N;
// N weights wanted; weights with max, first or last.
Status CheckBags(const Bags& bags);

// Pools rows that were found before: id i lies at refs[positions[i]]. `pooled`:
// [B, D] of the store's type, computed as ComputeOf it and rounded once.
// `winners` ([B, D], for max only, else null) gets the place in ids of each
// largest number, -1 where there is none.
// REQUIRES: CheckBags(bags).
void PoolFound(const EmbeddingStore& store, const Bags& bags,
               Span<const int64_t> positions, Span<const RowRef> refs,
               const Missing& missing, void* pooled, int64_t* winners,
               const ParallelFor* parallel);

// Pools rows that are looked up on the way; read only.
// REQUIRES: CheckBags(bags).
void PoolFind(const EmbeddingStore& store, const Bags& bags,
              const Missing& missing, void* pooled, int64_t* winners,
              const ParallelFor* parallel);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_POOL_H_
