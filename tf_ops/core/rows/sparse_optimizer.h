// Row-wise optimizers: one row's value and optimizer slots from its gradient.
// The formulas are those of keras.optimizers (docs/optimizers.md), operation
// by operation; only rows with a gradient change.

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
  // Hyperparameters by name, always learning_rate and weight_decay first. What
  // depends on the step alone comes in computed; differences such as
  // 1 - beta_1 come in as Keras rounds them, from float64 or from float32.
  //   sgd           none
  //   sgd_momentum  momentum, nesterov (0 or 1)
  //   adagrad       epsilon
  //   adam, adam_amsgrad
  //                 1 - beta_1, 1 - beta_2, epsilon, alpha
  //                 (alpha = lr sqrt(1 - beta_2^t) / (1 - beta_1^t))
  //   rmsprop, rmsprop_momentum, rmsprop_centered, rmsprop_momentum_centered
  //                 rho, 1 - rho, epsilon, momentum
  //   adadelta      rho, 1 - rho, epsilon
  //   adamax        1 - beta_1, beta_2, epsilon, 1 - beta_1^t
  //   nadam         1 - beta_1, 1 - beta_2, epsilon, 1 - beta_2^t, u_t,
  //                 u_(t+1), u_1 ... u_t
  //   lion          beta_1, 1 - beta_1, beta_2, 1 - beta_2
  //   ftrl          learning_rate_power, l1, l2, l2_shrinkage, beta
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
  template <typename Rule>
  static Definition Define(const char* name, int hyperparameters,
                           std::vector<std::string> slots);
  static const std::vector<Definition>& Definitions();

  Updates updates_;
  int num_slots_ = 0;
  std::vector<float> h_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_SPARSE_OPTIMIZER_H_
