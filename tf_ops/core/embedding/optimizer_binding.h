// OptimizerBinding: which optimizer's slots are stored with a table's rows.

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

// An optimizer stays attached until another one replaces it between two steps.
// A step that finds its own optimizer here may therefore write to slots until
// it ends.
class OptimizerBinding {
 public:
  explicit OptimizerBinding(ShardedRows* rows) : rows_(*rows) {}

  // Thread-safe methods.

  bool bound() const { return current() != nullptr; }
  // The attached optimizer; an empty name means no optimizer. The reference
  // stays valid after another optimizer is attached.
  const AttachedOptimizer& optimizer() const {
    static const AttachedOptimizer none;
    const AttachedOptimizer* const bound = current();
    return bound == nullptr ? none : *bound;
  }
  bool IsBoundTo(const AttachedOptimizer& optimizer) const;
  // Returns FailedPrecondition if another optimizer is attached, and the error
  // of ShardedRows::CheckTrains.
  Status Check(const AttachedOptimizer& optimizer) const;

  // Require all locks: reserve memory for the slots, then Bind, which cannot
  // fail.

  Status Reserve(const AttachedOptimizer& optimizer);
  // Attaches the optimizer and fills the slots of every row, so the next
  // snapshot is a full one. Requires: Reserve; if an optimizer is attached
  // already, also that no step is inside the table's StepGate and no snapshot
  // is running.
  void Bind(AttachedOptimizer optimizer);
  // Reserve and Bind, if no optimizer is attached yet. Returns
  // FailedPrecondition if another one is.
  Status Attach(const AttachedOptimizer& optimizer);

  // Resets the slots of a row. Requires the row lock, unless the row is not
  // visible yet.
  void FillSlots(RowStore* rows, uint32_t row);

 private:
  const AttachedOptimizer* current() const {
    return current_.load(std::memory_order_acquire);
  }

  ShardedRows& rows_;
  // Every optimizer ever attached, because readers take no lock.
  std::forward_list<AttachedOptimizer> bound_;
  std::forward_list<AttachedOptimizer> reserved_;  // node for the next one
  std::atomic<const AttachedOptimizer*> current_{nullptr};
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_OPTIMIZER_BINDING_H_
