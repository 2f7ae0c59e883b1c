#include "tf_ops/core/collection/embedding_gradient.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/embedding/embedding_run.h"

namespace lodestar {

// Reads the batch in order; the sums of frequent ids stay in the L1 and L2
// caches.
template <typename T>
void SumByPosition(const T* gradients, Span<const int64_t> positions,
                   int64_t num_unique, int dim, ComputeOf<T>* sums,
                   const ParallelFor* parallel) {
  using C = ComputeOf<T>;
  const auto sum_part = [&](int64_t part, int64_t num_parts) {
    GradientSums<C> rows(sums, num_unique, dim, part, num_parts);
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
        AddScaled<false>(gradients + (first + taken[k]) * dim, C{1}, dim,
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

template <typename C>
void BagFactors(const Bags& bags, Span<const int64_t> positions, int64_t b,
                C* factors) {
  const int64_t first = bags.row_splits[b];
  const int64_t last = bags.row_splits[b + 1];
  const bool weighted = !bags.weights.empty();
  int64_t count = 0;
  int64_t first_id = -1;
  int64_t last_id = -1;
  C total = 0;
  for (int64_t i = first; i < last; ++i) {
    if (positions[i] == kNoPosition) continue;
    ++count;
    if (first_id < 0) first_id = i;
    last_id = i;
    if (weighted) {
      const C w = bags.weights[i];
      total += bags.combiner == Combiner::kSqrtn ? w * w : w;
    }
  }
  if (!weighted) total = static_cast<C>(count);
  C divisor = 1;
  if (bags.combiner == Combiner::kMean) divisor = total;
  if (bags.combiner == Combiner::kSqrtn) divisor = std::sqrt(total);
  const C inverse = divisor == C{0} ? C{0} : C{1} / divisor;
  if (!weighted && bags.combiner <= Combiner::kSqrtn) {
    std::fill_n(factors, last - first, inverse);
    return;
  }
  for (int64_t i = first; i < last; ++i) {
    C& factor = factors[i - first];
    switch (bags.combiner) {
      case Combiner::kSum:
      case Combiner::kMean:
      case Combiner::kSqrtn:
        factor = bags.weights[i] * inverse;
        break;
      case Combiner::kFirst:
        factor = i == first_id ? C{1} : C{0};
        break;
      case Combiner::kLast:
        factor = i == last_id ? C{1} : C{0};
        break;
      case Combiner::kMax:
        factor = C{1};
        break;
    }
  }
}

template void BagFactors(const Bags&, Span<const int64_t>, int64_t, float*);
template void BagFactors(const Bags&, Span<const int64_t>, int64_t, double*);

#define INSTANTIATE(T)                                                        \
  template void SumByPosition<T>(const T*, Span<const int64_t>, int64_t, int, \
                                 ComputeOf<T>*, const ParallelFor*)
INSTANTIATE(float);
INSTANTIATE(double);
INSTANTIATE(Float16);
INSTANTIATE(BFloat16);
#undef INSTANTIATE

}  // namespace lodestar
