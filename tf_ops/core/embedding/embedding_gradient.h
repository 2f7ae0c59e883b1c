// The gradient of a lookup: rows summed by id in batch order, so the sums do
// not depend on the number of threads.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_GRADIENT_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_GRADIENT_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// Sums are divided into this many parts, which threads process one by one; a
// power of 2.
constexpr int64_t kSumParts = 4;

// One part of sums[num_unique, dim], summed by one thread. Parts consist of
// rows, interleaved in blocks, so that each has an equal share of the frequent
// ids, which come first in a batch. Dividing columns would be slower: a
// processor loads pairs of cache lines, so threads that share a row wait for
// each other. Rows are zeroed a few at a time, shortly before their first use;
// positions come from BatchUnique in ascending order of first use, so this
// needs no second sweep over the memory.
class GradientSums {
 public:
  // `part` is in [0, num_parts), where num_parts is a power of 2.
  GradientSums(float* sums, int64_t num_unique, int64_t dim, int64_t part,
               int64_t num_parts)
      : sums_(sums),
        num_unique_(num_unique),
        dim_(dim),
        block_bits_(BlockBits(dim)),
        part_(part),
        mask_(num_parts - 1) {}

  // Returns false for kNoPosition.
  bool Has(int64_t position) const {
    return position >= 0 && ((position >> block_bits_) & mask_) == part_;
  }
  // Prefetches the row of a position of this part.
  void Prefetch(int64_t position) const {
    PrefetchRow<1>(sums_ + position * dim_, dim_ * sizeof(float));
  }
  // Requires: Has(position).
  float* Row(int64_t position) {
    if (position >= begun_) {
      Begin(std::min(num_unique_, position + kRowsAtOnce));
    }
    return sums_ + position * dim_;
  }
  // Zeroes the rows that were never used.
  void Finish() { Begin(num_unique_); }

 private:
  static constexpr int64_t kRowsAtOnce = 32;
  static constexpr int64_t kBlockBytes = 256;

  static int BlockBits(int64_t dim) {
    int bits = 0;
    while ((dim * static_cast<int64_t>(sizeof(float)) << bits) < kBlockBytes) {
      ++bits;
    }
    return bits;
  }
  void Begin(int64_t end) {
    const int64_t block = int64_t{1} << block_bits_;
    while (begun_ < end) {
      const int64_t until = std::min(end, (begun_ | (block - 1)) + 1);
      if (Has(begun_))
        std::fill(sums_ + begun_ * dim_, sums_ + until * dim_, 0.0f);
      begun_ = until;
    }
  }

  float* const sums_;
  const int64_t num_unique_;
  const int64_t dim_;
  const int block_bits_;
  const int64_t part_;
  const int64_t mask_;
  int64_t begun_ = 0;  // rows [0, begun_) of this part are initialized
};

// sums[u] = sum of gradients[i] over all i with positions[i] == u. gradients:
// [N, D]; sums: [num_unique, D]. Requires: every position is kNoPosition or in
// [0, num_unique). T: float, Float16 or BFloat16.
template <typename T>
void SumByPosition(const T* gradients, Span<const int64_t> positions,
                   int64_t num_unique, int dim, float* sums,
                   const ParallelFor* parallel);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_GRADIENT_H_
