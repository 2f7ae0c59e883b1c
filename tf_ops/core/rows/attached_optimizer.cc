#include "tf_ops/core/rows/attached_optimizer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/sparse_optimizer.h"

namespace lodestar {

Status AttachedOptimizer::Check() const {
  if (unfused()) {
    if (slot_names.size() != slot_inits.size()) {
      return InvalidArgument("'", name, "' has ", slot_names.size(),
                             " slot names, but ", slot_inits.size(),
                             " slot_inits.");
    }
    if (slot_names.size() > RowStore::kMaxSlots) {
      return InvalidArgument("'", name, "' must have at most ",
                             RowStore::kMaxSlots, " optimizer slots, got ",
                             slot_names.size(), ".");
    }
    for (auto slot = slot_names.begin(); slot != slot_names.end(); ++slot) {
      if (std::find(slot_names.begin(), slot, *slot) != slot) {
        return InvalidArgument("'", name, "' has two optimizer slots named '",
                               *slot, "'.");
      }
    }
    return Status();
  }
  std::vector<std::string> known;
  if (!SparseOptimizer::SlotNames(name, &known)) {
    return InvalidArgument("unknown optimizer '", name, "'.");
  }
  if (known != slot_names || known.size() != slot_inits.size()) {
    return InvalidArgument("'", name, "' has ", known.size(),
                           " optimizer slots, but got ", slot_names.size(),
                           " slot names and ", slot_inits.size(),
                           " slot_inits.");
  }
  return Status();
}

SlotShape AttachedOptimizer::slots() const {
  return {static_cast<int64_t>(slot_names.size()),
          SparseOptimizer::IsRowWise(name)};
}

Status AttachedOptimizer::CheckUnfused() const {
  if (unfused()) return Check();
  return InvalidArgument("`optimizer` must be 'replay:' and a name, got '",
                         name, "'.");
}

Status OtherOptimizerError(const AttachedOptimizer& held,
                           const AttachedOptimizer& applied) {
  if (held.name == applied.name) {
    return FailedPrecondition(
        "the table has the optimizer slots [", Join(held.slot_names), "] of '",
        held.name, "', but the update uses [", Join(applied.slot_names), "].");
  }
  return FailedPrecondition(
      "the table has the optimizer slots of '", held.name,
      "', but the update uses '", applied.name,
      "'. To replace the slots, train with a newly created optimizer. To "
      "restore a snapshot without its slots, pass optimizer_slots=\"reset\".");
}

}  // namespace lodestar
