#include "tf_ops/core/rows/attached_optimizer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/sparse_optimizer.h"

namespace lodestar {

Status AttachedOptimizer::Check() const {
  if (replayed()) {
    if (slot_names.size() != slot_inits.size()) {
      return InvalidArgument("'", name, "' has ", slot_names.size(),
                             " slot names, but ", slot_inits.size(),
                             " slot_inits");
    }
    if (slot_names.size() > RowStore::kMaxSlots) {
      return InvalidArgument("'", name, "' has ", slot_names.size(),
                             " optimizer slots, wanted ", RowStore::kMaxSlots,
                             " at most");
    }
    for (auto slot = slot_names.begin(); slot != slot_names.end(); ++slot) {
      if (std::find(slot_names.begin(), slot, *slot) != slot) {
        return InvalidArgument("'", name, "' has two optimizer slots '", *slot,
                               "'");
      }
    }
    return Status();
  }
  std::vector<std::string> known;
  if (!SparseOptimizer::SlotNames(name, &known)) {
    return InvalidArgument("the optimizer '", name, "' is unknown");
  }
  if (known != slot_names || known.size() != slot_inits.size()) {
    return InvalidArgument("there are ", slot_names.size(), " slot names and ",
                           slot_inits.size(), " slot_inits, but '", name,
                           "' has ", known.size(), " optimizer slots");
  }
  return Status();
}

Status OtherOptimizerError(const AttachedOptimizer& held,
                           const AttachedOptimizer& applied) {
  if (held.name == applied.name) {
    return FailedPrecondition("the table holds the optimizer slots [",
                              Join(held.slot_names), "] of '", held.name,
                              "', but it is to be applied with [",
                              Join(applied.slot_names), "]");
  }
  return FailedPrecondition(
      "the table holds the optimizer slots of '", held.name, "', but '",
      applied.name,
      "' is to be applied. To drop them, train with an optimizer that is made "
      "from now on: it starts with slots of its own. A snapshot is restored "
      "without optimizer slots by optimizer_slots=\"reset\"");
}

}  // namespace lodestar
