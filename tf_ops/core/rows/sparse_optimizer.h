// Row-wise optimizers: update the value and slots of one row from its gradient
// by a rule of optimizer_rules.h. Rows without a gradient do not change.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_SPARSE_OPTIMIZER_H_
#define LODESTAR_TF_OPS_CORE_ROWS_SPARSE_OPTIMIZER_H_

#include <string>
#include <vector>

#include "tf_ops/core/base/isa.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/rows/slot_shape.h"

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
  // Returns true if the slots of an optimizer have one value per row. Returns
  // false if there is no such optimizer.
  static bool IsRowWise(const std::string& name);

  // `value` and `slots[s]` hold `dim` values each and must not overlap.
  // Requires: Create succeeded and not row_wise().
  void Update(const float* gradient, int dim, float* value,
              float* const* slots) const;

  // An update of a row in two parts. `slots`: one value per slot;
  // `mean_square`: of the row's gradient. Returns the rate of UpdateColumns,
  // which may be called for parts of the row. Requires: Create succeeded and
  // row_wise().
  float UpdateSlots(float mean_square, float* slots) const;
  void UpdateColumns(float rate, const float* gradient, int dim,
                     float* value) const;

  int num_slots() const { return static_cast<int>(slots_.count); }
  bool row_wise() const { return slots_.row_wise; }
  const SlotShape& slots() const { return slots_; }

 private:
  using UpdateRow = void (*)(const float* h, const float* gradient, int dim,
                             float* value, float* const* slots);
  using UpdateRate = float (*)(const float* h, float mean_square, float* slots);
  using ApplyRate = void (*)(const float* h, float rate, const float* gradient,
                             int dim, float* value);
  struct Updates {
    UpdateRow row = nullptr;
    UpdateRate rate = nullptr;
    ApplyRate columns = nullptr;
  };
  struct Definition;
  static const std::vector<Definition>& Definitions();
  static const Definition* Find(const std::string& name);
  template <typename Rule>
  static Updates UpdatesFor(Isa isa);

  Updates updates_;
  SlotShape slots_;
  std::vector<float> h_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_SPARSE_OPTIMIZER_H_
