// The gradient of a lookup: rows summed by id, in batch order, so that the
// sum does not depend on the number of threads.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_GRADIENT_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_GRADIENT_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/embedding/embedding_pool.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// Parts of sums, of which each of several threads takes some; a power of 2.
constexpr int64_t kSumParts = 4;

// A part of sums[num_unique, dim], by one thread. Parts are made of rows, in
// blocks that are dealt out: equal shares of the frequent ids, which a batch
// has first. Columns would be worse: a processor loads pairs of cache lines, so
// threads that share out a row wait for each other. Rows are set to zeros a few
// at a time, shortly before they are first asked for: in the order of positions
// that BatchUnique makes without a second walk through the memory.
// C: float or double.
template <typename C>
class GradientSums {
 public:
  // Part `part` of `num_parts`, a power of 2.
  GradientSums(C* sums, int64_t num_unique, int64_t dim, int64_t part,
               int64_t num_parts)
      : sums_(sums),
        num_unique_(num_unique),
        dim_(dim),
        block_bits_(BlockBits(dim)),
        part_(part),
        mask_(num_parts - 1) {}

  // False for kNoPosition, too.
  bool Has(int64_t position) const {
    return position >= 0 && ((position >> block_bits_) & mask_) == part_;
  }
  // Begins to load the row of a position that this has.
  void Prefetch(int64_t position) const {
    PrefetchRow<1>(sums_ + position * dim_, dim_ * sizeof(C));
  }
  // REQUIRES: Has(position).
  C* Row(int64_t position) {
    if (position >= begun_) {
      Begin(std::min(num_unique_, position + kRowsAtOnce));
    }
    return sums_ + position * dim_;
  }
  // Zeros where nothing came.
  void Finish() { Begin(num_unique_); }

 private:
  static constexpr int64_t kRowsAtOnce = 32;
  static constexpr int64_t kBlockBytes = 256;

  static int BlockBits(int64_t dim) {
    int bits = 0;
    while ((dim * static_cast<int64_t>(sizeof(C)) << bits) < kBlockBytes) {
      ++bits;
    }
    return bits;
  }
  void Begin(int64_t end) {
    const int64_t block = int64_t{1} << block_bits_;
    while (begun_ < end) {
      const int64_t until = std::min(end, (begun_ | (block - 1)) + 1);
      if (Has(begun_))
        std::fill(sums_ + begun_ * dim_, sums_ + until * dim_, C{0});
      begun_ = until;
    }
  }

  C* const sums_;
  const int64_t num_unique_;
  const int64_t dim_;
  const int block_bits_;
  const int64_t part_;
  const int64_t mask_;
  int64_t begun_ = 0;  // its rows of [0, begun_) hold sums
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
