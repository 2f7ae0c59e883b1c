// Identifies the optimizer that a table's slots belong to.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ATTACHED_OPTIMIZER_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ATTACHED_OPTIMIZER_H_

#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/rows/slot_shape.h"

namespace lodestar {

// The optimizer whose slots are stored with the rows. An empty name means no
// optimizer.
struct AttachedOptimizer {
  std::string name;
  std::vector<std::string> slot_names;
  std::vector<float> slot_inits;

  // The name is an update rule of sparse_optimizer.h, with the slots of that
  // rule, or "replay:" and any name: an unfused optimizer, whose updates are
  // computed outside of the store, with up to RowStore::kMaxSlots slots of
  // different names. Returns InvalidArgument for anything else.
  Status Check() const;
  // Check, which also returns InvalidArgument for an update rule.
  Status CheckUnfused() const;
  bool unfused() const { return name.compare(0, 7, "replay:") == 0; }
  bool has_slots() const { return !slot_names.empty(); }
  // The slots of a row. Their width follows from the name.
  SlotShape slots() const;
  // Returns true if the slots of `other` can be used by this optimizer.
  bool IsLike(const AttachedOptimizer& other) const {
    return name == other.name && slot_names == other.slot_names;
  }
};

// Which existing slots a new optimizer keeps: none, the slots of an equal
// optimizer, or all.
enum class KeptSlots { kNone, kEqual, kAll };

// Returns true if `next` starts with fresh slots in place of the slots of
// `bound`.
inline bool Restarts(const AttachedOptimizer& bound,
                     const AttachedOptimizer& next, KeptSlots keep) {
  if (keep == KeptSlots::kNone) return true;
  if (bound.IsLike(next)) return false;
  return keep == KeptSlots::kEqual || !bound.has_slots();
}

// FailedPrecondition for a table that holds the slots of one optimizer and is
// updated by another.
Status OtherOptimizerError(const AttachedOptimizer& held,
                           const AttachedOptimizer& applied);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ATTACHED_OPTIMIZER_H_
