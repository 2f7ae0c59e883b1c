// LookupPlan: what a training lookup knows about its unique ids, for the
// gradient and the update that follow.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_LOOKUP_PLAN_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_LOOKUP_PLAN_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/embedding/sharded_rows.h"

namespace lodestar {

// Made by EmbeddingStore::PlanOf; the owner of the plan has the ids, in the
// order of `refs`. Rows may have moved or been removed since the lookup, so an
// update confirms each one (RowStore::Lock).
struct LookupPlan {
  int64_t store = 0;  // the number of the store that was searched
  std::vector<RowRef> refs;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_LOOKUP_PLAN_H_
