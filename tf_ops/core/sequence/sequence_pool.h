// Pooling of sequences: rows [N, D] and row_splits [B + 1] -> rows [B, D].
//
// Combiners are sum, mean, sqrtn (sum / sqrt(length)), max, first and last. An
// empty sequence yields pad_value and has no gradient. The semantics follow
// Paddle's sequence_pool, whose `average` is mean here, and `sqrt` is sqrtn.
//
// T is float, double, int32_t, int64_t, or a 16-bit float type that converts to
// and from float.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_POOL_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_POOL_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/base/isa.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/sequence/sequence_units.h"
#include "tf_ops/core/sequence/vector_columns.h"

namespace lodestar {

// Columns pooled in one pass over the rows of a sequence. The accumulators stay
// in the L1 cache.
constexpr int64_t kPoolColumns = 64;

// Rows of a long sequence that are counted in 32 bits.
constexpr int64_t kPoolPiece = int64_t{1} << 30;

// Types for comparisons and for sums of T. 16-bit floats use float; int32 is
// summed as int64, so that the mean is correct even if the sum overflows int32.
template <typename T>
using PoolValue = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
template <typename T>
using PoolSum =
    std::conditional_t<std::is_same_v<T, int32_t>, int64_t, PoolValue<T>>;

// Integers wrap around, as in TensorFlow, so they are added as unsigned.
template <typename S, bool = std::is_integral_v<S>>
struct WrappingOf {
  using Type = S;
};
template <typename S>
struct WrappingOf<S, true> {
  using Type = std::make_unsigned_t<S>;
};

template <typename S>
S AddWrapping(S a, S b) {
  using Wrapping = typename WrappingOf<S>::Type;
  return static_cast<S>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
}

// Converts n sums over `length` rows to the combiner's result. Integer results
// are rounded toward zero. Requires: length >= 1.
template <typename S>
LODESTAR_INLINE void DivideSums(Combiner combiner, int64_t length, int64_t n,
                                S* sums) {
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

// Sums the first n <= kPoolColumns columns of `length` rows with a stride of
// `stride` values. Requires: length >= 1.
template <typename T>
LODESTAR_INLINE void PoolSums(Combiner combiner, const T* rows, int64_t stride,
                              int64_t length, int64_t n, T* out) {
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

// Like PoolSums, for max. Writes the row of each maximum, counted from
// first_row, to `winners`. The first of equal values wins; a NaN never replaces
// a number.
template <typename T>
LODESTAR_INLINE void PoolMaxima(const T* rows, int64_t stride, int64_t length,
                                int64_t n, int64_t first_row, T* out,
                                int64_t* winners) {
  using V = PoolValue<T>;
  // As wide as V, so that both fill vector registers alike. Long sequences are
  // processed in pieces whose row numbers fit.
  using RowNumber = std::conditional_t<sizeof(V) == 8, int64_t, int32_t>;
  V best[kPoolColumns];
  for (int64_t c = 0; c < n; ++c) best[c] = static_cast<V>(rows[c]);
  int64_t begin = 1;
  do {
    const int64_t end = std::min(length, begin + kPoolPiece);
    RowNumber offsets[kPoolColumns];
    std::fill_n(offsets, n, RowNumber{-1});
    for (int64_t r = begin; r < end; ++r) {
      const T* row = rows + r * stride;
      const RowNumber here = static_cast<RowNumber>(r - begin);
      for (int64_t c = 0; c < n; ++c) {
        const V x = static_cast<V>(row[c]);
        // Bit operations, because the compiler would turn a conditional into a
        // branch.
        const RowNumber more = -static_cast<RowNumber>(x > best[c]);
        offsets[c] = (here & more) | (offsets[c] & ~more);
        best[c] = x > best[c] ? x : best[c];
      }
    }
    // In the first piece, -1 denotes the row before it, which is the first row.
    for (int64_t c = 0; c < n; ++c) {
      if (begin != 1 && offsets[c] < 0) continue;
      winners[c] = first_row + begin + offsets[c];
    }
    begin = end;
  } while (begin < length);
  for (int64_t c = 0; c < n; ++c) out[c] = static_cast<T>(best[c]);
}

// The arguments of SequencePool.
template <typename T>
struct PoolArguments {
  Combiner combiner;
  const T* rows;
  int64_t dim;
  Span<const int64_t> splits;
  T pad_value;
  T* pooled;
  int64_t* winners;
};

// Pools columns [c, end) of sequence b, kVectors registers at a time while they
// are full. Returns the column after the last one. Requires: b is not empty;
// the row numbers of the sequence fit.
template <Isa kIsa, int kVectors, typename T>
LODESTAR_INLINE int64_t PoolInVectors(const PoolArguments<T>& a, int64_t b,
                                      int64_t c) {
  constexpr int64_t kColumns = kVectorColumns<kIsa, T, kVectors>;
  const int64_t first = a.splits[b];
  const int64_t length = a.splits[b + 1] - first;
  for (; c + kColumns <= a.dim; c += kColumns) {
    const T* rows = a.rows + first * a.dim + c;
    T* out = a.pooled + b * a.dim + c;
    if (a.combiner == Combiner::kMax) {
      typename VectorOf<kIsa, T>::RowNumber offsets[kColumns];
      MaximaOfColumns<kIsa, kVectors>(rows, a.dim, length, out, offsets);
      int64_t* winners = a.winners + b * a.dim + c;
      for (int64_t i = 0; i < kColumns; ++i) winners[i] = first + offsets[i];
    } else {
      using Wrapping = typename WrappingOf<T>::Type;
      ReduceColumns<kIsa, kVectors, /*kMax=*/false>(
          reinterpret_cast<const Wrapping*>(rows), a.dim, length,
          reinterpret_cast<Wrapping*>(out));
      DivideSums(a.combiner, length, kColumns, out);
    }
  }
  return c;
}

// Pools sequence b. Requires: it is not empty.
template <Isa kIsa, typename T>
LODESTAR_INLINE void PoolSequence(const PoolArguments<T>& a, int64_t b) {
  const int64_t first = a.splits[b];
  const int64_t length = a.splits[b + 1] - first;
  T* out = a.pooled + b * a.dim;
  if (a.combiner == Combiner::kFirst || a.combiner == Combiner::kLast) {
    const int64_t r = a.combiner == Combiner::kFirst ? 0 : length - 1;
    std::copy_n(a.rows + (first + r) * a.dim, a.dim, out);
    return;
  }
  const bool max = a.combiner == Combiner::kMax;
  int64_t c = 0;
  // Only types that are summed as themselves, and row numbers of 32 bits.
  if constexpr (std::is_arithmetic_v<T>) {
    if (max ? length <= kPoolPiece : std::is_same_v<T, PoolSum<T>>) {
      c = PoolInVectors<kIsa, 4>(a, b, c);
      c = PoolInVectors<kIsa, 1>(a, b, c);
    }
  }
  for (; c < a.dim; c += kPoolColumns) {
    const int64_t n = std::min(kPoolColumns, a.dim - c);
    const T* rows = a.rows + first * a.dim + c;
    if (max) {
      PoolMaxima(rows, a.dim, length, n, first, out + c,
                 a.winners + b * a.dim + c);
    } else {
      PoolSums(a.combiner, rows, a.dim, length, n, out + c);
    }
  }
}

struct PoolSequences {
  // Pools sequences [first, last).
  template <Isa kIsa, typename T>
  LODESTAR_INLINE static void Run(const PoolArguments<T>& a, int64_t first,
                                  int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      if (a.splits[b] < a.splits[b + 1]) {
        PoolSequence<kIsa>(a, b);
        continue;
      }
      std::fill_n(a.pooled + b * a.dim, a.dim, a.pad_value);
      if (a.combiner == Combiner::kMax) {
        std::fill_n(a.winners + b * a.dim, a.dim, int64_t{-1});
      }
    }
  }
};

// Pools the sequences. For max, `winners` [B, D] receives the row of the first
// maximum, -1 for an empty sequence; otherwise it is unused. A NaN never
// replaces a number. `isa` is only set to compare instruction sets. Requires:
// splits are valid for N rows (lod.h).
template <typename T>
void SequencePool(Combiner combiner, const T* rows, int64_t dim,
                  Span<const int64_t> splits, T pad_value, T* pooled,
                  int64_t* winners, const ParallelFor* parallel,
                  Isa isa = BestIsa()) {
  if (dim == 0) return;
  const PoolArguments<T> arguments = {combiner,  rows,   dim,    splits,
                                      pad_value, pooled, winners};
  RunParallel(parallel, SequenceUnits(splits), 2 + dim / 4,
              [&](int64_t begin, int64_t end) {
                RunOn<PoolSequences>(isa, arguments,
                                     SequenceFrom(splits, begin),
                                     SequenceFrom(splits, end));
              });
}

// Sets columns [c, dim) of `count` rows at `out` to the gradient `in` of the
// sum, mean or sqrtn of `length` rows, kVectors registers at a time while they
// are full. Returns the column after the last one.
template <Isa kIsa, int kVectors, typename T>
LODESTAR_INLINE int64_t SpreadInVectors(Combiner combiner, const T* in,
                                        int64_t dim, int64_t length,
                                        int64_t count, int64_t c, T* out) {
  constexpr int64_t kColumns = kVectorColumns<kIsa, T, kVectors>;
  for (; c + kColumns <= dim; c += kColumns) {
    T scaled[kColumns];
    std::copy_n(in + c, kColumns, scaled);
    DivideSums(combiner, length, kColumns, scaled);
    RepeatColumns<kIsa, kVectors>(scaled, dim, count, out + c);
  }
  return c;
}

// Like SpreadInVectors, for max: each value is written only to the row in
// `winners`, if that is in [first, first + count).
template <Isa kIsa, int kVectors, typename T>
LODESTAR_INLINE int64_t PutInVectors(const T* in, const int64_t* winners,
                                     int64_t dim, int64_t first, int64_t count,
                                     int64_t c, T* out) {
  using RowNumber = typename VectorOf<kIsa, T>::RowNumber;
  constexpr int64_t kColumns = kVectorColumns<kIsa, T, kVectors>;
  for (; c + kColumns <= dim; c += kColumns) {
    RowNumber offsets[kColumns];
    for (int64_t i = 0; i < kColumns; ++i) {
      const int64_t row = winners[c + i];
      const bool inside = (row >= first) & (row < first + count);
      offsets[i] = static_cast<RowNumber>((row - first) | -int64_t{!inside});
    }
    PutColumns<kIsa, kVectors>(in + c, offsets, dim, count, out + c);
  }
  return c;
}

// Computes the gradient of rows [first, last) of one sequence. `in` and
// `winners` are its rows of the pooled gradient and of the winners.
struct PoolGradientOfRows {
  template <Isa kIsa, typename T>
  LODESTAR_INLINE static void Run(Combiner combiner, const T* in, int64_t dim,
                                  int64_t sequence_first, int64_t sequence_last,
                                  const int64_t* winners, int64_t first,
                                  int64_t last, T* rows_gradient) {
    if (first >= last) return;
    T* out = rows_gradient + first * dim;
    const int64_t count = last - first;
    if (combiner == Combiner::kSum || combiner == Combiner::kMean ||
        combiner == Combiner::kSqrtn) {
      const int64_t length = sequence_last - sequence_first;
      int64_t c = 0;
      if constexpr (std::is_arithmetic_v<T>) {
        c = SpreadInVectors<kIsa, 4>(combiner, in, dim, length, count, c, out);
        c = SpreadInVectors<kIsa, 1>(combiner, in, dim, length, count, c, out);
      }
      for (; c < dim; c += kPoolColumns) {
        PoolSum<T> scaled[kPoolColumns];
        const int64_t n = std::min(kPoolColumns, dim - c);
        for (int64_t i = 0; i < n; ++i) {
          scaled[i] = static_cast<PoolSum<T>>(in[c + i]);
        }
        DivideSums(combiner, length, n, scaled);
        for (int64_t i = 0; i < n; ++i) out[c + i] = static_cast<T>(scaled[i]);
        for (int64_t r = 1; r < count; ++r) {
          std::copy_n(out + c, n, out + r * dim + c);
        }
      }
      return;
    }
    if (combiner == Combiner::kMax) {
      int64_t c = 0;
      if constexpr (std::is_arithmetic_v<T>) {
        if (count <= kPoolPiece) {
          c = PutInVectors<kIsa, 4>(in, winners, dim, first, count, c, out);
          c = PutInVectors<kIsa, 1>(in, winners, dim, first, count, c, out);
        }
      }
      if (c == dim) return;
      for (int64_t r = 0; r < count; ++r) {
        std::fill_n(out + r * dim + c, dim - c, static_cast<T>(0));
      }
      for (; c < dim; ++c) {
        if (winners[c] >= first && winners[c] < last) {
          rows_gradient[winners[c] * dim + c] = in[c];
        }
      }
      return;
    }
    std::fill_n(out, count * dim, static_cast<T>(0));
    const int64_t source =
        combiner == Combiner::kFirst ? sequence_first : sequence_last - 1;
    if (source >= first && source < last) {
      std::copy_n(in, dim, rows_gradient + source * dim);
    }
  }
};

// Computes the gradient [N, D] of the rows from the gradient of the pooled
// rows [B, D]. For max, `winners` must be as written by SequencePool; returns
// InvalidArgument, with the sequence, if it contains a row of another sequence.
// Requires: as SequencePool; T is a float type.
template <typename T>
Status SequencePoolGradient(Combiner combiner, const T* gradient, int64_t dim,
                            Span<const int64_t> splits, const int64_t* winners,
                            T* rows_gradient, const ParallelFor* parallel,
                            Isa isa = BestIsa()) {
  if (dim == 0) return Status();
  const auto is_outside = [&](int64_t b, int64_t i) {
    return int{winners[i] < splits[b]} | int{winners[i] >= splits[b + 1]};
  };
  // Whether `winners` contains a row outside of sequence b. Branchless, to be
  // vectorized.
  const auto has_outside = [&](int64_t b) {
    int found = 0;
    for (int64_t i = b * dim; i < (b + 1) * dim; ++i) found |= is_outside(b, i);
    return found != 0 && splits[b] < splits[b + 1];
  };
  std::atomic<bool> found_outside{false};
  ForSequencePieces(
      parallel, splits, 2 + dim / 2,
      [&](int64_t b, int64_t first, int64_t last, bool begins) {
        if (combiner == Combiner::kMax && begins && has_outside(b)) {
          found_outside = true;
        }
        RunOn<PoolGradientOfRows>(
            isa, combiner, gradient + b * dim, dim, splits[b], splits[b + 1],
            winners == nullptr ? nullptr : winners + b * dim, first, last,
            rows_gradient);
      });
  if (!found_outside) return Status();
  int64_t b = 0;
  while (!has_outside(b)) ++b;
  int64_t i = b * dim;
  while (!is_outside(b, i)) ++i;
  return InvalidArgument("`index` has ", winners[i], " for sequence ", b,
                         " of rows [", splits[b], ", ", splits[b + 1], ").");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_POOL_H_
