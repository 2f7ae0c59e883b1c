#include "tf_ops/core/embedding_gradient.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tf_ops/core/batch_unique.h"

namespace lodestar {

void SumByPosition(const float* gradients, Span<const int64_t> positions,
                   int64_t num_unique, int dim, float* sums,
                   const ParallelFor* parallel) {
  const Occurrences occurrences(positions, num_unique);
  const int64_t mean = num_unique == 0 ? 0 : positions.size() / num_unique + 1;
  RunParallel(parallel, num_unique, mean * (10 + dim / 2),
              [&](int64_t begin, int64_t end) {
                for (int64_t u = begin; u < end; ++u) {
                  float* sum = sums + u * dim;
                  std::fill_n(sum, dim, 0.0f);
                  for (int64_t k = occurrences.begins[u];
                       k < occurrences.begins[u + 1]; ++k) {
                    const float* gradient =
                        gradients + occurrences.order[k] * dim;
                    for (int c = 0; c < dim; ++c) sum[c] += gradient[c];
                  }
                }
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
  const Occurrences occurrences(positions, num_unique);
  const bool max = bags.combiner == Combiner::kMax;
  const int64_t mean = num_unique == 0 ? 0 : n / num_unique + 1;
  RunParallel(parallel, num_unique, mean * (10 + dim / 2),
              [&](int64_t begin, int64_t end) {
                for (int64_t u = begin; u < end; ++u) {
                  float* sum = sums + u * dim;
                  std::fill_n(sum, dim, 0.0f);
                  for (int64_t k = occurrences.begins[u];
                       k < occurrences.begins[u + 1]; ++k) {
                    const int64_t i = occurrences.order[k];
                    const float* gradient = gradients + bag_of[i] * dim;
                    if (max) {
                      const int64_t* winner = winners + bag_of[i] * dim;
                      for (int c = 0; c < dim; ++c) {
                        if (winner[c] == i) sum[c] += gradient[c];
                      }
                    } else {
                      for (int c = 0; c < dim; ++c)
                        sum[c] += scale[i] * gradient[c];
                    }
                  }
                }
              });
}

}  // namespace lodestar
