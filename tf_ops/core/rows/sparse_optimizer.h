// Row-wise optimizers: one row's value and optimizer slots from its gradient,
// by the rules of optimizer_rules.h; only rows with a gradient change.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_SPARSE_OPTIMIZER_H_
#define LODESTAR_TF_OPS_CORE_ROWS_SPARSE_OPTIMIZER_H_

#include <string>
#include <vector>

#include "tf_ops/core/base/isa.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

class SparseOptimizer {
 public:
  // `hyperparameters` are those that the rule of this name has in
  // optimizer_rules.h, in that order.
  // Updates are the same to the bit with every instruction set.
  // InvalidArgument: another name, or another number of hyperparameters.
  // REQUIRES: the processor has `isa`.
  static Status Create(const std::string& name,
                       Span<const float> hyperparameters, SparseOptimizer* out,
                       Isa isa = BestIsa());

  // The optimizer slots of a name, at most RowStore::kMaxSlots; false: no such
  // optimizer.
  static bool SlotNames(const std::string& name,
                        std::vector<std::string>* slots);

  // `value` and `slots[s]` hold the row, `dim` numbers each; none overlaps
  // another. REQUIRES: Create succeeded.
  void Update(const float* gradient, int dim, float* value,
              float* const* slots) const;
  void Update(const double* gradient, int dim, double* value,
              double* const* slots) const;

  int num_slots() const { return num_slots_; }

 private:
  template <typename C>
  using UpdateRow = void (*)(const float* h, const C* gradient, int dim,
                             C* value, C* const* slots);
  struct Updates {
    UpdateRow<float> of_float = nullptr;
    UpdateRow<double> of_double = nullptr;
  };
  struct Definition;
  static const std::vector<Definition>& Definitions();

  Updates updates_;
  int num_slots_ = 0;
  std::vector<float> h_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_SPARSE_OPTIMIZER_H_
