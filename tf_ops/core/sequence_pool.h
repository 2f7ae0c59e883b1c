// Pooling of sequences: rows [N, D] and row_splits [B + 1] -> rows [B, D].
//
// sum, mean, sqrtn (sum / sqrt(length)), max, first, last, over each sequence;
// an empty sequence gives pad_value and no gradient. The semantics are
// Paddle's sequence_pool; its `average` is mean here and its `sqrt` is sqrtn.
//
// T is float, double, int32_t, int64_t, or a 16-bit float type that converts
// to and from float.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_POOL_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_POOL_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tf_ops/core/combiner.h"
#include "tf_ops/core/parallel.h"
#include "tf_ops/core/sequence_units.h"
#include "tf_ops/core/span.h"
#include "tf_ops/core/status.h"

namespace lodestar {

// Columns that are pooled in one walk over the rows of a sequence: the running
// result stays in the first-level cache.
constexpr int64_t kPoolColumns = 64;

// What T is compared in, and what it is summed in: 16-bit floats as float;
// int32 sums as int64, so that a mean is right where the sum is too large.
template <typename T>
using PoolValue = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
template <typename T>
using PoolSum =
    std::conditional_t<std::is_same_v<T, int32_t>, int64_t, PoolValue<T>>;

// Integers wrap around, as TensorFlow's do.
template <typename S>
S AddWrapping(S a, S b) {
  if constexpr (std::is_integral_v<S>) {
    return static_cast<S>(static_cast<std::make_unsigned_t<S>>(a) +
                          static_cast<std::make_unsigned_t<S>>(b));
  } else {
    return a + b;
  }
}

// Turns n sums over `length` rows into sums, means or sqrtn. Integers are cut
// toward zero. REQUIRES: length >= 1.
template <typename S>
void DivideSums(Combiner combiner, int64_t length, int64_t n, S* sums) {
  if (length == 1) return;
  if (combiner == Combiner::kMean) {
    const S divisor = static_cast<S>(length);
    for (int64_t c = 0; c < n; ++c) sums[c] /= divisor;
  } else if (combiner == Combiner::kSqrtn) {
    const double root = std::sqrt(static_cast<double>(length));
    using Divisor = std::conditional_t<std::is_integral_v<S>, double, S>;
    const Divisor divisor = static_cast<Divisor>(root);
    for (int64_t c = 0; c < n; ++c) {
      sums[c] = static_cast<S>(static_cast<Divisor>(sums[c]) / divisor);
    }
  }
}

// Sums `length` rows of `stride` numbers each, their first n <= kPoolColumns
// columns. REQUIRES: length >= 1.
template <typename T>
void PoolSums(Combiner combiner, const T* rows, int64_t stride, int64_t length,
              int64_t n, T* out) {
  PoolSum<T> sums[kPoolColumns];
  for (int64_t c = 0; c < n; ++c) sums[c] = static_cast<PoolSum<T>>(rows[c]);
  for (int64_t r = 1; r < length; ++r) {
    const T* row = rows + r * stride;
    for (int64_t c = 0; c < n; ++c) {
      sums[c] = AddWrapping(sums[c], static_cast<PoolSum<T>>(row[c]));
    }
  }
  DivideSums(combiner, length, n, sums);
  for (int64_t c = 0; c < n; ++c) out[c] = static_cast<T>(sums[c]);
}

// As PoolSums, for the maxima: index gets first_row + the place of each. The
// first of equal numbers wins; a NaN never replaces a number.
template <typename T>
void PoolMaxima(const T* rows, int64_t stride, int64_t length, int64_t n,
                int64_t first_row, T* out, int64_t* index) {
  using V = PoolValue<T>;
  // As wide as V, so that both fill vector registers alike; long sequences go
  // in pieces whose places fit.
  using Place = std::conditional_t<sizeof(V) == 8, int64_t, int32_t>;
  constexpr int64_t kPiece = int64_t{1} << 30;
  V best[kPoolColumns];
  for (int64_t c = 0; c < n; ++c) best[c] = static_cast<V>(rows[c]);
  int64_t begin = 1;
  do {
    const int64_t end = std::min(length, begin + kPiece);
    Place place[kPoolColumns];
    std::fill_n(place, n, Place{-1});
    for (int64_t r = begin; r < end; ++r) {
      const T* row = rows + r * stride;
      const Place here = static_cast<Place>(r - begin);
      for (int64_t c = 0; c < n; ++c) {
        const V x = static_cast<V>(row[c]);
        // Bits, not a choice, which the compiler would make a branch.
        const Place more = -static_cast<Place>(x > best[c]);
        place[c] = (here & more) | (place[c] & ~more);
        best[c] = x > best[c] ? x : best[c];
      }
    }
    // In the first piece -1 is the row before it, the first one of all.
    for (int64_t c = 0; c < n; ++c) {
      if (begin == 1 || place[c] >= 0) index[c] = first_row + begin + place[c];
    }
    begin = end;
  } while (begin < length);
  for (int64_t c = 0; c < n; ++c) out[c] = static_cast<T>(best[c]);
}

// `index` is [B, D] for max, else not touched: the row of the first maximum, -1
// for an empty sequence. A NaN never replaces a number.
// REQUIRES: splits are valid for N rows (core/lod.h).
template <typename T>
void SequencePool(Combiner combiner, const T* rows, int64_t dim,
                  Span<const int64_t> splits, T pad_value, T* pooled,
                  int64_t* index, const ParallelFor* parallel) {
  if (dim == 0) return;
  const auto pool = [&](int64_t b) {
    const int64_t first = splits[b];
    const int64_t length = splits[b + 1] - first;
    T* out = pooled + b * dim;
    if (length == 0) {
      std::fill_n(out, dim, pad_value);
      if (combiner == Combiner::kMax) {
        std::fill_n(index + b * dim, dim, int64_t{-1});
      }
      return;
    }
    if (combiner == Combiner::kFirst || combiner == Combiner::kLast) {
      const int64_t r = combiner == Combiner::kFirst ? 0 : length - 1;
      std::copy_n(rows + (first + r) * dim, dim, out);
      return;
    }
    for (int64_t c = 0; c < dim; c += kPoolColumns) {
      const int64_t n = std::min(kPoolColumns, dim - c);
      const T* begin = rows + first * dim + c;
      if (combiner == Combiner::kMax) {
        PoolMaxima(begin, dim, length, n, first, out + c, index + b * dim + c);
      } else {
        PoolSums(combiner, begin, dim, length, n, out + c);
      }
    }
  };
  RunParallel(parallel, SequenceUnits(splits), 2 + dim / 2,
              [&](int64_t begin, int64_t end) {
                const int64_t last = SequenceFrom(splits, end);
                for (int64_t b = SequenceFrom(splits, begin); b < last; ++b) {
                  pool(b);
                }
              });
}

// The gradient of rows [first, last) of one sequence. `in` and `index` are its
// row of the pooled gradient and of the index.
template <typename T>
void SequencePoolGradientRows(Combiner combiner, const T* in, int64_t dim,
                              int64_t sequence_first, int64_t sequence_last,
                              const int64_t* index, int64_t first, int64_t last,
                              T* rows_gradient) {
  if (first >= last) return;
  T* out = rows_gradient + first * dim;
  if (combiner == Combiner::kSum || combiner == Combiner::kMean ||
      combiner == Combiner::kSqrtn) {
    PoolSum<T> scaled[kPoolColumns];
    for (int64_t c = 0; c < dim; c += kPoolColumns) {
      const int64_t n = std::min(kPoolColumns, dim - c);
      for (int64_t i = 0; i < n; ++i) {
        scaled[i] = static_cast<PoolSum<T>>(in[c + i]);
      }
      DivideSums(combiner, sequence_last - sequence_first, n, scaled);
      for (int64_t i = 0; i < n; ++i) out[c + i] = static_cast<T>(scaled[i]);
    }
    for (int64_t r = 1; r < last - first; ++r) {
      std::copy_n(out, dim, out + r * dim);
    }
    return;
  }
  std::fill_n(out, (last - first) * dim, static_cast<T>(0));
  if (combiner == Combiner::kMax) {
    for (int64_t c = 0; c < dim; ++c) {
      if (index[c] >= first && index[c] < last) {
        rows_gradient[index[c] * dim + c] = in[c];
      }
    }
    return;
  }
  const int64_t source =
      combiner == Combiner::kFirst ? sequence_first : sequence_last - 1;
  if (source >= first && source < last) {
    std::copy_n(in, dim, rows_gradient + source * dim);
  }
}

// The gradient [N, D] of the rows, from that of the pooled rows [B, D]. For max
// `index` is what SequencePool wrote; InvalidArgument, naming the sequence, if
// it holds a row of another sequence.
// REQUIRES: as SequencePool; T is a float type.
template <typename T>
Status SequencePoolGradient(Combiner combiner, const T* gradient, int64_t dim,
                            Span<const int64_t> splits, const int64_t* index,
                            T* rows_gradient, const ParallelFor* parallel) {
  if (dim == 0) return Status();
  // The first number of `index` that is no row of sequence b, or -1.
  const auto stray = [&](int64_t b) {
    if (splits[b] == splits[b + 1]) return int64_t{-1};
    for (int64_t i = b * dim; i < (b + 1) * dim; ++i) {
      if (index[i] < splits[b] || index[i] >= splits[b + 1]) return i;
    }
    return int64_t{-1};
  };
  std::atomic<bool> strayed{false};
  ForSequencePieces(
      parallel, splits, 2 + dim / 2,
      [&](int64_t b, int64_t first, int64_t last, bool begins) {
        if (combiner == Combiner::kMax && begins && stray(b) >= 0) {
          strayed = true;
        }
        SequencePoolGradientRows(combiner, gradient + b * dim, dim, splits[b],
                                 splits[b + 1],
                                 index == nullptr ? nullptr : index + b * dim,
                                 first, last, rows_gradient);
      });
  if (!strayed) return Status();
  int64_t b = 0;
  while (stray(b) < 0) ++b;
  return InvalidArgument("`index` holds ", index[stray(b)], " for sequence ", b,
                         " of rows [", splits[b], ", ", splits[b + 1], ")");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_POOL_H_
