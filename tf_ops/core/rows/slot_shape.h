// Number and width of the optimizer slots of a row.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_SLOT_SHAPE_H_
#define LODESTAR_TF_OPS_CORE_ROWS_SLOT_SHAPE_H_

#include <cstdint>

namespace lodestar {

struct SlotShape {
  int64_t count = 0;
  // A slot has one value for the whole row, instead of one per column.
  bool row_wise = false;

  // Number of values of one slot of a row, and of all of them.
  int64_t Width(int64_t dim) const { return row_wise ? 1 : dim; }
  int64_t Size(int64_t dim) const { return count * Width(dim); }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_SLOT_SHAPE_H_
