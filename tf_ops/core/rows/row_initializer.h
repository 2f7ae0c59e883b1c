// The first value of a row: a function of (seed, salt, id, column) and nothing
// else, so it is the same for any thread, shard count and order of arrival.
//
// Integer arithmetic and + - * / sqrt only (no libm), so it is also the same on
// every machine. Normal values are the inverse of the normal distribution
// function (Wichura, Algorithm AS 241, PPND7, Applied Statistics 37, 1988).

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ROW_INITIALIZER_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ROW_INITIALIZER_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

class RowInitializer {
 public:
  enum class Kind {
    kConstant,         // a
    kUniform,          // [a, b)
    kNormal,           // mean a, standard deviation b
    kTruncatedNormal,  // the same, cut at two standard deviations
  };

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

  int64_t seed() const { return seed_; }
  int64_t salt() const { return salt_; }
  // As restored with a table; the kind and its numbers stay.
  void SetSeed(int64_t seed, int64_t salt);

 private:
  Kind kind_ = Kind::kConstant;
  float a_ = 0.0f;
  float b_ = 0.0f;
  int64_t seed_ = 0;
  int64_t salt_ = 0;
  uint64_t key_ = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ROW_INITIALIZER_H_
