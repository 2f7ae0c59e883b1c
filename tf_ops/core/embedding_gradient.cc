#include "tf_ops/core/embedding_gradient.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tf_ops/core/batch_unique.h"
#include "tf_ops/core/embedding_run.h"

namespace lodestar {

namespace {

// add(i, sum, first, last) adds columns [first, last) of what id i contributes
// to `sum`. The batch is read in order and the sums of frequent ids stay in
// the first caches; tasks share out columns, so an id that fills the batch is
// no burden to one of them, but pairs of cache lines, which memory brings
// together.
template <typename Add>
void SumColumns(Span<const int64_t> positions, int64_t num_unique, int dim,
                float* sums, const ParallelFor* parallel, const Add& add) {
  const int64_t tasks = std::max(1, dim / 32);
  RunParallel(parallel, tasks, positions.size() * (dim / tasks + 4) / 4 + 1,
              [&](int64_t begin, int64_t end) {
                GradientSums rows(sums, num_unique, dim, begin * dim / tasks,
                                  end * dim / tasks);
                for (int64_t i = 0; i < positions.size(); ++i) {
                  rows.Prefetch(positions, i + kAhead);
                  if (positions[i] == kNoPosition) continue;
                  add(i, rows.Row(positions[i]), rows.first(), rows.last());
                }
                rows.Finish();
              });
}

void AddScaled(const float* __restrict row, float factor, int64_t first,
               int64_t last, float* __restrict sum) {
  for (int64_t c = first; c < last; ++c) sum[c] += factor * row[c];
}

}  // namespace

void SumByPosition(const float* gradients, Span<const int64_t> positions,
                   int64_t num_unique, int dim, float* sums,
                   const ParallelFor* parallel) {
  SumColumns(positions, num_unique, dim, sums, parallel,
             [&](int64_t i, float* sum, int64_t first, int64_t last) {
               AddScaled(gradients + i * dim, 1.0f, first, last, sum);
             });
}

void BagFactors(const Bags& bags, Span<const int64_t> positions, int64_t b,
                float* factors) {
  const int64_t first = bags.row_splits[b];
  const int64_t last = bags.row_splits[b + 1];
  int64_t count = 0;
  int64_t first_id = -1;
  int64_t last_id = -1;
  float total = 0.0f;
  for (int64_t i = first; i < last; ++i) {
    if (positions[i] == kNoPosition) continue;
    ++count;
    if (first_id < 0) first_id = i;
    last_id = i;
    if (!bags.weights.empty()) {
      const float w = bags.weights[i];
      total += bags.combiner == Combiner::kSqrtn ? w * w : w;
    }
  }
  if (bags.weights.empty()) total = static_cast<float>(count);
  float divisor = 1.0f;
  if (bags.combiner == Combiner::kMean) divisor = total;
  if (bags.combiner == Combiner::kSqrtn) divisor = std::sqrt(total);
  const float inverse = divisor == 0.0f ? 0.0f : 1.0f / divisor;
  for (int64_t i = first; i < last; ++i) {
    float& factor = factors[i - first];
    switch (bags.combiner) {
      case Combiner::kSum:
      case Combiner::kMean:
      case Combiner::kSqrtn:
        factor = bags.weights.empty() ? inverse : bags.weights[i] * inverse;
        break;
      case Combiner::kFirst:
        factor = i == first_id ? 1.0f : 0.0f;
        break;
      case Combiner::kLast:
        factor = i == last_id ? 1.0f : 0.0f;
        break;
      case Combiner::kMax:
        factor = 1.0f;
        break;
    }
  }
}

void SumPooledByPosition(const float* gradients, const Bags& bags,
                         Span<const int64_t> positions, int64_t num_unique,
                         const int64_t* winners, int dim, float* sums,
                         const ParallelFor* parallel) {
  const int64_t n = positions.size();
  // The bag of each id, and what its gradient is multiplied with.
  std::vector<int64_t> bag_of(n);
  std::vector<float> scale(n);
  RunParallel(parallel, bags.size(), 20, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      for (int64_t i = bags.row_splits[b]; i < bags.row_splits[b + 1]; ++i) {
        bag_of[i] = b;
      }
      BagFactors(bags, positions, b, scale.data() + bags.row_splits[b]);
    }
  });
  const bool max = bags.combiner == Combiner::kMax;
  SumColumns(positions, num_unique, dim, sums, parallel,
             [&](int64_t i, float* sum, int64_t first, int64_t last) {
               const float* gradient = gradients + bag_of[i] * dim;
               if (!max) {
                 AddScaled(gradient, scale[i], first, last, sum);
                 return;
               }
               const int64_t* winner = winners + bag_of[i] * dim;
               for (int64_t c = first; c < last; ++c) {
                 if (winner[c] == i) sum[c] += gradient[c];
               }
             });
}

}  // namespace lodestar
