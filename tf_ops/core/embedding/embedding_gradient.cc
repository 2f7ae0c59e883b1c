#include "tf_ops/core/embedding/embedding_gradient.h"

#include <algorithm>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/embedding/embedding_run.h"

namespace lodestar {

// Reads the batch in order; the sums of frequent ids stay in the L1 and L2
// caches.
template <typename T>
void SumByPosition(const T* gradients, Span<const int64_t> positions,
                   int64_t num_unique, int dim, float* sums,
                   const ParallelFor* parallel) {
  const auto sum_part = [&](int64_t part, int64_t num_parts) {
    GradientSums rows(sums, num_unique, dim, part, num_parts);
    // Collects the indices of the part's ids without unpredictable branches.
    constexpr int64_t kTaken = 256;
    int32_t taken[kTaken];
    for (int64_t first = 0; first < positions.size(); first += kTaken) {
      const int64_t length = std::min(kTaken, positions.size() - first);
      const int64_t* const run = positions.data() + first;
      int64_t count = 0;
      for (int32_t i = 0; i < length; ++i) {
        taken[count] = i;
        count += rows.Has(run[i]);
      }
      for (int64_t k = 0; k < count; ++k) {
        if (k + kAhead < count) {
          const int32_t ahead = taken[k + kAhead];
          PrefetchRow<0>(gradients + (first + ahead) * dim, dim * sizeof(T));
          rows.Prefetch(run[ahead]);
        }
        AddScaled<false>(gradients + (first + taken[k]) * dim, 1.0f, dim,
                         rows.Row(run[taken[k]]));
      }
    }
    rows.Finish();
  };
  if (parallel == nullptr) {
    sum_part(0, 1);
    return;
  }
  RunParallel(parallel, kSumParts,
              positions.size() * (dim + 8) / 4 / kSumParts + 1,
              [&](int64_t begin, int64_t end) {
                if (end - begin == kSumParts) {
                  sum_part(0, 1);
                  return;
                }
                for (int64_t p = begin; p < end; ++p) {
                  sum_part(p, kSumParts);
                }
              });
}

#define INSTANTIATE(T)                                                        \
  template void SumByPosition<T>(const T*, Span<const int64_t>, int64_t, int, \
                                 float*, const ParallelFor*)
INSTANTIATE(float);
INSTANTIATE(Float16);
INSTANTIATE(BFloat16);
#undef INSTANTIATE

}  // namespace lodestar
