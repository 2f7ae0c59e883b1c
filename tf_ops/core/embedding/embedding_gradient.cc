#include "tf_ops/core/embedding/embedding_gradient.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/embedding/embedding_run.h"

namespace lodestar {

// The batch is read in order and the sums of frequent ids stay in the first
// caches; tasks share out columns, so an id that fills the batch is no burden
// to one of them, but pairs of cache lines, which memory brings together.
template <typename T>
void SumByPosition(const T* gradients, Span<const int64_t> positions,
                   int64_t num_unique, int dim, ComputeOf<T>* sums,
                   const ParallelFor* parallel) {
  const int64_t tasks = std::max(1, dim / 16);
  RunParallel(parallel, tasks, positions.size() * (dim / tasks + 4) / 4 + 1,
              [&](int64_t begin, int64_t end) {
                GradientSums<ComputeOf<T>> rows(sums, num_unique, dim,
                                                begin * dim / tasks,
                                                end * dim / tasks);
                for (int64_t i = 0; i < positions.size(); ++i) {
                  rows.Prefetch(positions, i + kAhead);
                  if (positions[i] == kNoPosition) continue;
                  const T* __restrict row = gradients + i * dim;
                  ComputeOf<T>* __restrict sum = rows.Row(positions[i]);
                  for (int64_t c = rows.first(); c < rows.last(); ++c) {
                    sum[c] += ToCompute(row[c]);
                  }
                }
                rows.Finish();
              });
}

template <typename C>
void BagFactors(const Bags& bags, Span<const int64_t> positions, int64_t b,
                C* factors) {
  const int64_t first = bags.row_splits[b];
  const int64_t last = bags.row_splits[b + 1];
  int64_t count = 0;
  int64_t first_id = -1;
  int64_t last_id = -1;
  C total = 0;
  for (int64_t i = first; i < last; ++i) {
    if (positions[i] == kNoPosition) continue;
    ++count;
    if (first_id < 0) first_id = i;
    last_id = i;
    if (!bags.weights.empty()) {
      const C w = bags.weights[i];
      total += bags.combiner == Combiner::kSqrtn ? w * w : w;
    }
  }
  if (bags.weights.empty()) total = static_cast<C>(count);
  C divisor = 1;
  if (bags.combiner == Combiner::kMean) divisor = total;
  if (bags.combiner == Combiner::kSqrtn) divisor = std::sqrt(total);
  const C inverse = divisor == C{0} ? C{0} : C{1} / divisor;
  for (int64_t i = first; i < last; ++i) {
    C& factor = factors[i - first];
    switch (bags.combiner) {
      case Combiner::kSum:
      case Combiner::kMean:
      case Combiner::kSqrtn:
        factor = bags.weights.empty() ? inverse : bags.weights[i] * inverse;
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
