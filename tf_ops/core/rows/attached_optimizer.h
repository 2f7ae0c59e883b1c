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
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ATTACHED_OPTIMIZER_H_
