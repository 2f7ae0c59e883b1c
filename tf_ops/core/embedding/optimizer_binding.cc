#include "tf_ops/core/embedding/optimizer_binding.h"

#include <string>
#include <utility>
#include <vector>

namespace lodestar {

bool OptimizerBinding::IsBoundTo(const AttachedOptimizer& optimizer) const {
  const AttachedOptimizer* const bound = current();
  return bound != nullptr && bound->IsLike(optimizer);
}

Status OptimizerBinding::Check(const AttachedOptimizer& optimizer) const {
  LODESTAR_RETURN_IF_ERROR(rows_.CheckTrains());
  const AttachedOptimizer* const bound = current();
  if (bound == nullptr || IsBoundTo(optimizer)) return Status();
  return OtherOptimizerError(*bound, optimizer);
}

Status OptimizerBinding::Reserve(const AttachedOptimizer& optimizer) {
  if (reserved_.empty()) reserved_.emplace_front();
  return rows_.ReserveSlots(optimizer.slots());
}

void OptimizerBinding::Bind(AttachedOptimizer optimizer) {
  rows_.ForgetBase();
  rows_.AttachSlots(optimizer.slots(), optimizer.slot_inits);
  reserved_.front() = std::move(optimizer);
  bound_.splice_after(bound_.before_begin(), reserved_);
  current_.store(&bound_.front(), std::memory_order_release);
}

Status OptimizerBinding::Attach(const AttachedOptimizer& optimizer) {
  LODESTAR_RETURN_IF_ERROR(Check(optimizer));
  if (bound()) return Status();
  LODESTAR_RETURN_IF_ERROR(Reserve(optimizer));
  Bind(optimizer);
  return Status();
}

void OptimizerBinding::FillSlots(RowStore* rows, uint32_t row) {
  // Empty without an optimizer; Bind will fill the slots of this row.
  const std::vector<float>& inits = optimizer().slot_inits;
  for (size_t s = 0; s < inits.size(); ++s) {
    rows->FillSlot(row, static_cast<int>(s), inits[s]);
  }
}

}  // namespace lodestar
