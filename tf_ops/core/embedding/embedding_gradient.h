// The gradient of a look-up: rows summed by id, in batch order, so that the
// sum does not depend on the number of threads.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_GRADIENT_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_GRADIENT_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/embedding/embedding_pool.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// Columns [first, last) of sums[num_unique, dim]. A row is set to zeros when it
// is first asked for, in the order of positions that BatchUnique makes without
// a second walk through the memory.
// C: float or double.
template <typename C>
class GradientSums {
 public:
  GradientSums(C* sums, int64_t num_unique, int64_t dim, int64_t first,
               int64_t last)
      : sums_(sums),
        num_unique_(num_unique),
        dim_(dim),
        first_(first),
        last_(last) {}

  int64_t first() const { return first_; }
  int64_t last() const { return last_; }

  // Begins to load the row of positions[i], if there is one.
  void Prefetch(Span<const int64_t> positions, int64_t i) const {
    if (i >= positions.size() || positions[i] == kNoPosition) return;
    const C* row = sums_ + positions[i] * dim_;
    for (int64_t c = first_; c < last_;
         c += 64 / static_cast<int64_t>(sizeof(C))) {
      __builtin_prefetch(row + c, 1);
    }
  }
  C* Row(int64_t position) {
    if (position >= begun_) Begin(position + 1);
    return sums_ + position * dim_;
  }
  // Zeros where nothing came.
  void Finish() { Begin(num_unique_); }

 private:
  void Begin(int64_t end) {
    for (; begun_ < end; ++begun_) {
      C* row = sums_ + begun_ * dim_;
      std::fill(row + first_, row + last_, C{0});
    }
  }

  C* const sums_;
  const int64_t num_unique_;
  const int64_t dim_;
  const int64_t first_;
  const int64_t last_;
  int64_t begun_ = 0;  // rows [0, begun_) hold sums
};
// In all of these T is float, double, Float16 or BFloat16.

// sums[u] = sum of gradients[i] over the i with positions[i] == u.
// gradients: [N, D]; sums: [num_unique, D].
// REQUIRES: every position is kNoPosition or in [0, num_unique).
template <typename T>
void SumByPosition(const T* gradients, Span<const int64_t> positions,
                   int64_t num_unique, int dim, ComputeOf<T>* sums,
                   const ParallelFor* parallel);

// What the gradient of bag b is multiplied with for each of its ids; ones for
// max, whose winners say which columns an id gets. bags.ids is not read.
// C: float or double.
// REQUIRES: CheckBags(bags); factors has room for the ids of the bag.
template <typename C>
void BagFactors(const Bags& bags, Span<const int64_t> positions, int64_t b,
                C* factors);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_GRADIENT_H_
