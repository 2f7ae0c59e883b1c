// The gradient of a look-up: rows summed by id, in batch order, so that the
// sum does not depend on the number of threads.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_GRADIENT_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_GRADIENT_H_

#include <cstdint>

#include "tf_ops/core/embedding_pool.h"
#include "tf_ops/core/parallel.h"
#include "tf_ops/core/span.h"

namespace lodestar {

// sums[u] = sum of gradients[i] over the i with positions[i] == u.
// gradients: [N, D]; sums: [num_unique, D].
// REQUIRES: every position is kNoPosition or in [0, num_unique).
void SumByPosition(const float* gradients, Span<const int64_t> positions,
                   int64_t num_unique, int dim, float* sums,
                   const ParallelFor* parallel);

// What the gradient of bag b is multiplied with for each of its ids; ones for
// max, whose winners say which columns an id gets. bags.ids is not read.
// REQUIRES: CheckBags(bags); factors has room for the ids of the bag.
void BagFactors(const Bags& bags, Span<const int64_t> positions, int64_t b,
                float* factors);

// The same sums through a pooled look-up. gradients: [B, D]; bags.ids is not
// read; winners: [B, D] as PoolFound wrote them, for max only. REQUIRES:
// CheckBags(bags) and positions as above.
void SumPooledByPosition(const float* gradients, const Bags& bags,
                         Span<const int64_t> positions, int64_t num_unique,
                         const int64_t* winners, int dim, float* sums,
                         const ParallelFor* parallel);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_GRADIENT_H_
