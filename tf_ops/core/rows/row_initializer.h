// RowInitializer: what initial_value.h says, as a table is told of it.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ROW_INITIALIZER_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ROW_INITIALIZER_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/rows/initial_value.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

class RowInitializer {
 public:
  // kind: zeros, ones, constant, uniform, normal or truncated_normal.
  // InvalidArgument: another kind; a or b not finite; b < a (uniform) or
  // b < 0 (normal).
  static Status Create(const std::string& kind, float a, float b, int64_t seed,
                       int64_t salt, RowInitializer* out);

  // Drawn as float, and rounded: a table starts alike in every type.
  // T: float, double, Float16 or BFloat16.
  template <typename T>
  void Draw(int64_t id, int dim, T* row) const {
    DrawColumns(id, 0, dim, row);
  }
  // Columns [first, first + count) of it.
  template <typename T>
  void DrawColumns(int64_t id, int first, int count, T* columns) const;

  InitialValue value() const {
    return {initial_.kind, initial_.a, initial_.b,
            __atomic_load_n(&initial_.key, __ATOMIC_RELAXED)};
  }
  int64_t seed() const { return seed_; }
  int64_t salt() const { return salt_; }
  // As restored with a table; the kind and its numbers stay.
  void SetSeed(int64_t seed, int64_t salt);

 private:
  InitialValue initial_;
  int64_t seed_ = 0;
  int64_t salt_ = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ROW_INITIALIZER_H_
