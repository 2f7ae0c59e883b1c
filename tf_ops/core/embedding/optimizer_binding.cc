#include "tf_ops/core/embedding/optimizer_binding.h"

#include <string>
#include <utility>
#include <vector>

namespace lodestar {

bool OptimizerBinding::IsBoundTo(const AttachedOptimizer& optimizer) const {
  return bound() && optimizer_.name == optimizer.name &&
         optimizer_.slot_names == optimizer.slot_names;
}

Status OptimizerBinding::Check(const AttachedOptimizer& optimizer) const {
  if (!bound() || IsBoundTo(optimizer)) return Status();
  if (optimizer_.name == optimizer.name) {
    return FailedPrecondition(
        "the table holds the optimizer slots [", Join(optimizer_.slot_names),
        "] of '", optimizer.name, "', but it is to be applied with [",
        Join(optimizer.slot_names), "]");
  }
  return FailedPrecondition(
      "the table holds the optimizer slots of '", optimizer_.name, "', but '",
      optimizer.name,
      "' is to be applied; a snapshot is restored without them by "
      "optimizer_slots=\"reset\"");
}

Status OptimizerBinding::Reserve(const AttachedOptimizer& optimizer) {
  return rows_.ReserveSlots(optimizer.slot_inits.size());
}

void OptimizerBinding::Bind(AttachedOptimizer optimizer) {
  rows_.ForgetBase();
  rows_.AttachSlots(optimizer.slot_inits);
  optimizer_ = std::move(optimizer);
  bound_.store(true, std::memory_order_release);
}

Status OptimizerBinding::Attach(const AttachedOptimizer& optimizer) {
  LODESTAR_RETURN_IF_ERROR(Check(optimizer));
  if (bound()) return Status();
  LODESTAR_RETURN_IF_ERROR(Reserve(optimizer));
  Bind(optimizer);
  return Status();
}

void OptimizerBinding::FillSlots(RowStore* rows, uint32_t row) {
  // Else Bind fills them, of this row too.
  if (!bound()) return;
  const std::vector<float>& inits = optimizer_.slot_inits;
  for (size_t s = 0; s < inits.size(); ++s) {
    rows->FillSlot(row, static_cast<int>(s), inits[s]);
  }
}

}  // namespace lodestar
