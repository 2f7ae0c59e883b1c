// Row-wise optimizers: update the value and slots of one row from its gradient
// by a rule of optimizer_rules.h. Rows without a gradient do not change.

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
  // `hyperparameters` are in the order of the rule with this name in
  // optimizer_rules.h. Updates have the same bits with every instruction set.
  // Returns InvalidArgument for an unknown name or a wrong number of
  // hyperparameters. Requires: the processor supports `isa`.
  static Status Create(const std::string& name,
                       Span<const float> hyperparameters, SparseOptimizer* out,
                       Isa isa = BestIsa());

  // Gets the slot names of an optimizer, at most RowStore::kMaxSlots. Returns
  // false if there is no such optimizer.
  static bool SlotNames(const std::string& name,
                        std::vector<std::string>* slots);

  // `value` and `slots[s]` hold `dim` values each and must not overlap.
  // Requires: Create succeeded.
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
