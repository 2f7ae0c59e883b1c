// Row-wise optimizers: one row's value and optimizer slots from its gradient.
// The formulas are those of keras.optimizers (docs/optimizers.md); only rows
// with a gradient change.

#ifndef LODESTAR_TF_OPS_CORE_SPARSE_OPTIMIZER_H_
#define LODESTAR_TF_OPS_CORE_SPARSE_OPTIMIZER_H_

#include <string>
#include <vector>

#include "tf_ops/core/span.h"
#include "tf_ops/core/status.h"

namespace lodestar {

class SparseOptimizer {
 public:
  // Hyperparameters by name, always learning_rate and weight_decay first:
  //   sgd           lr, wd
  //   sgd_momentum  lr, wd, momentum, nesterov (0 or 1)
  //   adagrad       lr, wd, epsilon
  //   adam          lr, wd, 1 - beta_1, 1 - beta_2, epsilon, alpha
  //                 (alpha = lr sqrt(1 - beta_2^t) / (1 - beta_1^t); the
  //                 differences come in as Keras rounds them, from float64)
  //   ftrl          lr, wd, learning_rate_power, l1, l2, l2_shrinkage, beta
  // InvalidArgument: another name, or another number of hyperparameters.
  static Status Create(const std::string& name,
                       Span<const float> hyperparameters, SparseOptimizer* out);

  // The optimizer slots of a name; false: no such optimizer.
  static bool SlotNames(const std::string& name,
                        std::vector<std::string>* slots);

  // `value` and `slots[s]` hold the row, `dim` numbers each.
  void Update(const float* gradient, int dim, float* value,
              float* const* slots) const;

  int num_slots() const { return num_slots_; }

 private:
  enum class Kind { kSgd, kSgdMomentum, kAdagrad, kAdam, kFtrl };

  Kind kind_ = Kind::kSgd;
  int num_slots_ = 0;
  std::vector<float> h_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SPARSE_OPTIMIZER_H_
