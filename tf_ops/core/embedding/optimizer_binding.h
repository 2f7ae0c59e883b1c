// OptimizerBinding: whose optimizer slots lie beside the rows of a table.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_OPTIMIZER_BINDING_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_OPTIMIZER_BINDING_H_

#include <atomic>
#include <cstdint>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_store.h"

namespace lodestar {

// An optimizer comes once, wholly, and stays: a table with the slots of another
// one is another table. So who has found it here may write to slots from then
// on.
class OptimizerBinding {
 public:
  explicit OptimizerBinding(ShardedRows* rows) : rows_(*rows) {}

  // Any thread.

  bool bound() const { return bound_.load(std::memory_order_acquire); }
  // That is bound; an empty name: none yet.
  const AttachedOptimizer& optimizer() const {
    static const AttachedOptimizer none;
    return bound() ? optimizer_ : none;
  }
  bool IsBoundTo(const AttachedOptimizer& optimizer) const;
  // FailedPrecondition: another one is bound.
  Status Check(const AttachedOptimizer& optimizer) const;

  // Under all locks: memory for its slots, then the rest, which cannot fail.

  Status Reserve(const AttachedOptimizer& optimizer);
  // Every row has new slots, so that nothing of the table is as its base says.
  // REQUIRES: Reserve, and none is bound.
  void Bind(AttachedOptimizer optimizer);
  // Both, if none is bound yet. FailedPrecondition: another one is.
  Status Attach(const AttachedOptimizer& optimizer);

  // The slots of a row that the caller holds, or that no one can see yet, begin
  // anew.
  void FillSlots(RowStore* rows, uint32_t row);

 private:
  ShardedRows& rows_;
  AttachedOptimizer optimizer_;  // written once, before bound_
  std::atomic<bool> bound_{false};
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_OPTIMIZER_BINDING_H_
