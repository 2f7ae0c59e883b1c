// RowInitializer: an InitialValue configured by name, for all row types.

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
  // `kind`: zeros, ones, constant, uniform, normal or truncated_normal. Returns
  // InvalidArgument for another kind, for a or b that are not finite, and for b
  // < a (uniform) or b < 0 (normal).
  static Status Create(const std::string& kind, float a, float b, int64_t seed,
                       int64_t salt, RowInitializer* out);

  // Values are drawn as float and then rounded, so a table starts with the same
  // values in every type. T: float, Float16 or BFloat16.
  template <typename T>
  void Draw(int64_t id, int dim, T* row) const {
    DrawColumns(id, 0, dim, row);
  }
  // Draws columns [first, first + count) only.
  template <typename T>
  void DrawColumns(int64_t id, int first, int count, T* columns) const;

  InitialValue value() const {
    return {initial_.kind, initial_.a, initial_.b,
            __atomic_load_n(&initial_.key, __ATOMIC_RELAXED)};
  }
  int64_t seed() const { return seed_; }
  int64_t salt() const { return salt_; }
  // Sets the seed of a restored table; kind, a and b stay.
  void SetSeed(int64_t seed, int64_t salt);

 private:
  InitialValue initial_;
  int64_t seed_ = 0;
  int64_t salt_ = 0;
};

// Gives shared rows other initial values than the table's own rows.
RowInitializer OfSharedRows(const RowInitializer& initializer);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ROW_INITIALIZER_H_
