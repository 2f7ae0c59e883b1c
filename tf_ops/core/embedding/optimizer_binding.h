// OptimizerBinding: whose optimizer slots lie beside the rows of a table.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_OPTIMIZER_BINDING_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_OPTIMIZER_BINDING_H_

#include <atomic>
#include <cstdint>
#include <forward_list>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_store.h"

namespace lodestar {

// An optimizer stays bound until another one takes its place between two steps.
// So a step that finds its own optimizer here may write to slots until it ends.
class OptimizerBinding {
 public:
  explicit OptimizerBinding(ShardedRows* rows) : rows_(*rows) {}

  // Any thread.

  bool bound() const { return current() != nullptr; }
  // The bound optimizer; an empty name if there is none yet. The reference
  // stays valid after another optimizer is bound.
  const AttachedOptimizer& optimizer() const {
    static const AttachedOptimizer none;
    const AttachedOptimizer* const bound = current();
    return bound == nullptr ? none : *bound;
  }
  bool IsBoundTo(const AttachedOptimizer& optimizer) const;
  // FailedPrecondition: another one is bound.
  Status Check(const AttachedOptimizer& optimizer) const;

  // Under all locks: memory for its slots, then the rest, which cannot fail.

  Status Reserve(const AttachedOptimizer& optimizer);
  // Fills the slots of every row, so the next snapshot is a whole one. Takes
  // the place of the optimizer that was bound, if any. REQUIRES: Reserve; where
  // one is bound, that no step is inside StepGate and no snapshot is running.
  void Bind(AttachedOptimizer optimizer);
  // Both, if none is bound yet. FailedPrecondition: another one is.
  Status Attach(const AttachedOptimizer& optimizer);

  // The slots of a row that the caller holds, or that no one can see yet, begin
  // anew.
  void FillSlots(RowStore* rows, uint32_t row);

 private:
  const AttachedOptimizer* current() const {
    return current_.load(std::memory_order_acquire);
  }

  ShardedRows& rows_;
  // All that were ever bound, because readers take no lock.
  std::forward_list<AttachedOptimizer> bound_;
  std::forward_list<AttachedOptimizer> reserved_;  // a node for the next one
  std::atomic<const AttachedOptimizer*> current_{nullptr};
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_OPTIMIZER_BINDING_H_
