// Which optimizer a table's slots belong to.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ATTACHED_OPTIMIZER_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ATTACHED_OPTIMIZER_H_

#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// The optimizer whose slots lie beside the rows; empty name: none yet.
struct AttachedOptimizer {
  std::string name;
  std::vector<std::string> slot_names;
  std::vector<float> slot_inits;

  // An update rule of sparse_optimizer.h with its slots, or "replay:" and any
  // name, whose updates are computed outside of the store, with up to
  // RowStore::kMaxSlots slots of different names.
  // InvalidArgument: it is neither.
  Status Check() const;
  bool replayed() const { return name.compare(0, 7, "replay:") == 0; }
  bool has_slots() const { return !slot_names.empty(); }
  // Whether slots of the other one are slots of this one, too.
  bool IsLike(const AttachedOptimizer& other) const {
    return name == other.name && slot_names == other.slot_names;
  }
};

// Which slots of a table a new optimizer keeps: those of its own kind, if any,
// or all.
enum class KeptSlots { kNone, kEqual, kAll };

// Whether `next` starts with fresh slots in place of those of `bound`.
inline bool Restarts(const AttachedOptimizer& bound,
                     const AttachedOptimizer& next, KeptSlots keep) {
  if (keep == KeptSlots::kNone) return true;
  if (bound.IsLike(next)) return false;
  return keep == KeptSlots::kEqual || !bound.has_slots();
}

// FailedPrecondition: a table that holds the slots of one optimizer is to be
// updated by another.
Status OtherOptimizerError(const AttachedOptimizer& held,
                           const AttachedOptimizer& applied);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ATTACHED_OPTIMIZER_H_
