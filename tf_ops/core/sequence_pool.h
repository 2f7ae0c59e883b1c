// Pooling of sequences: rows [N, D] and row_splits [B + 1] -> rows [B, D].
//
// sum, mean, sqrtn (sum / sqrt(length)), max, first, last, over each sequence;
// an empty sequence gives pad_value and no gradient. The semantics are
// Paddle's sequence_pool; its `average` is mean here and its `sqrt` is sqrtn.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_POOL_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_POOL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tf_ops/core/combiner.h"
#include "tf_ops/core/parallel.h"
#include "tf_ops/core/span.h"

namespace lodestar {

// Integer means and sqrtn are rounded toward zero from float64.
template <typename T>
T DivideBy(T sum, double divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return sum / static_cast<T>(divisor);
  } else {
    return static_cast<T>(static_cast<double>(sum) / divisor);
  }
}

inline double PoolDivisor(Combiner combiner, int64_t length) {
  if (combiner == Combiner::kMean) return static_cast<double>(length);
  if (combiner == Combiner::kSqrtn) {
    return std::sqrt(static_cast<double>(length));
  }
  return 1.0;
}

// `index` is [B, D] for max, else not touched: the row of the first maximum, -1
// for an empty sequence. A NaN never replaces a number.
// REQUIRES: splits are valid for N rows (core/lod.h).
template <typename T>
void SequencePool(Combiner combiner, const T* rows, int64_t dim,
                  Span<const int64_t> splits, T pad_value, T* pooled,
                  int64_t* index, const ParallelFor* parallel) {
  const int64_t batch = splits.size() - 1;
  const int64_t mean = batch == 0 ? 0 : splits[batch] / batch + 1;
  RunParallel(parallel, batch, mean * (4 + dim / 2),
              [&](int64_t begin, int64_t end) {
                for (int64_t b = begin; b < end; ++b) {
                  const int64_t first = splits[b];
                  const int64_t last = splits[b + 1];
                  T* out = pooled + b * dim;
                  int64_t* winner =
                      combiner == Combiner::kMax ? index + b * dim : nullptr;
                  if (first == last) {
                    std::fill_n(out, dim, pad_value);
                    if (winner != nullptr)
                      std::fill_n(winner, dim, int64_t{-1});
                    continue;
                  }
                  if (combiner == Combiner::kLast) {
                    std::copy_n(rows + (last - 1) * dim, dim, out);
                    continue;
                  }
                  std::copy_n(rows + first * dim, dim, out);
                  if (combiner == Combiner::kFirst) continue;
                  if (winner != nullptr) std::fill_n(winner, dim, first);
                  for (int64_t r = first + 1; r < last; ++r) {
                    const T* row = rows + r * dim;
                    if (winner != nullptr) {
                      for (int64_t c = 0; c < dim; ++c) {
                        if (row[c] > out[c]) {
                          out[c] = row[c];
                          winner[c] = r;
                        }
                      }
                    } else {
                      for (int64_t c = 0; c < dim; ++c) out[c] += row[c];
                    }
                  }
                  const double divisor = PoolDivisor(combiner, last - first);
                  if (divisor != 1.0) {
                    for (int64_t c = 0; c < dim; ++c)
                      out[c] = DivideBy(out[c], divisor);
                  }
                }
              });
}

// The gradient [N, D] of the rows, from that of the pooled rows [B, D].
// REQUIRES: as SequencePool; index as it wrote it, for max.
template <typename T>
void SequencePoolGradient(Combiner combiner, const T* gradient, int64_t dim,
                          Span<const int64_t> splits, const int64_t* index,
                          T* rows_gradient, const ParallelFor* parallel) {
  const int64_t batch = splits.size() - 1;
  const int64_t mean = batch == 0 ? 0 : splits[batch] / batch + 1;
  RunParallel(
      parallel, batch, mean * (4 + dim / 2), [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          const int64_t first = splits[b];
          const int64_t last = splits[b + 1];
          if (first == last) continue;
          const T* in = gradient + b * dim;
          T* out = rows_gradient + first * dim;
          if (combiner == Combiner::kSum || combiner == Combiner::kMean ||
              combiner == Combiner::kSqrtn) {
            const double divisor = PoolDivisor(combiner, last - first);
            for (int64_t c = 0; c < dim; ++c) out[c] = DivideBy(in[c], divisor);
            for (int64_t r = 1; r < last - first; ++r) {
              std::copy_n(out, dim, out + r * dim);
            }
            continue;
          }
          std::fill_n(out, (last - first) * dim, T{0});
          if (combiner == Combiner::kFirst) {
            std::copy_n(in, dim, out);
          } else if (combiner == Combiner::kLast) {
            std::copy_n(in, dim, out + (last - first - 1) * dim);
          } else {
            for (int64_t c = 0; c < dim; ++c) {
              rows_gradient[index[b * dim + c] * dim + c] = in[c];
            }
          }
        }
      });
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_POOL_H_
