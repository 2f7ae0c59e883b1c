// Sum of the squares of a row, added in an order that depends on the columns
// alone: the result has the same bits with every instruction set, on the GPU,
// and if the row is added in parts.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_SQUARE_SUMS_H_
#define LODESTAR_TF_OPS_CORE_ROWS_SQUARE_SUMS_H_

#include <algorithm>

namespace lodestar {

// Column c belongs to partial sum c % kSquareSums, in ascending order. Then
// sums i and i + 8 are added, i and i + 4, i and i + 2, and the last two.
constexpr int kSquareSums = 16;

class SquareSums {
 public:
  // Adds the next columns of the row. Requires: the columns added before are a
  // multiple of kSquareSums.
  void Add(const float* x, int count) {
    float sums[kSquareSums];
    std::copy_n(sums_, kSquareSums, sums);
    int c = 0;
    for (; c + kSquareSums <= count; c += kSquareSums) {
      for (int k = 0; k < kSquareSums; ++k) sums[k] += x[c + k] * x[c + k];
    }
    for (int k = 0; c + k < count; ++k) sums[k] += x[c + k] * x[c + k];
    std::copy_n(sums, kSquareSums, sums_);
  }

  float Total() const {
    float sums[kSquareSums];
    std::copy_n(sums_, kSquareSums, sums);
    for (int half = kSquareSums / 2; half > 0; half /= 2) {
      for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
    }
    return sums[0];
  }

 private:
  float sums_[kSquareSums] = {};
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_SQUARE_SUMS_H_
