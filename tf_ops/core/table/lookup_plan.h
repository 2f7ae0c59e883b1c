// LookupPlan: the places of the rows that a training lookup found, for the
// gradient and the update that follow.

#ifndef LODESTAR_TF_OPS_CORE_TABLE_LOOKUP_PLAN_H_
#define LODESTAR_TF_OPS_CORE_TABLE_LOOKUP_PLAN_H_

#include <cstdint>
#include <vector>

namespace lodestar {

struct RowMeta;

// Place of a row when it was looked up. Readers confirm that the row is still
// there.
struct RowRef {
  static constexpr uint32_t kNoRow = 0xffffffff;
  uint32_t shard = 0;
  uint32_t row = kNoRow;
  RowMeta* meta = nullptr;  // set if the row was found
  bool found() const { return row != kNoRow; }
};

// The owner of the plan has the ids, in the order of `refs`. Rows may have
// moved or been removed since the lookup, so an update confirms each one
// (RowStore::Lock).
struct LookupPlan {
  int64_t store = 0;  // the number of the store that was searched; 0: none
  std::vector<RowRef> refs;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_TABLE_LOOKUP_PLAN_H_
