// Softmax within each sequence, separately for each column: rows [N, D] and
// row_splits [B + 1] -> probabilities [N, D] whose columns sum to 1 in each
// sequence. Subtracts the column's maximum first, so that no exponential
// overflows. A column of a sequence is all NaN if it contains a NaN or
// +infinity, or only -infinity.
//
// T is float, double, or a 16-bit float type that converts to and from float,
// in which it is computed. Input and output may be the same memory.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SOFTMAX_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SOFTMAX_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tf_ops/core/base/isa.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/sequence/sequence_units.h"
#include "tf_ops/core/sequence/vector_columns.h"
#include "tf_ops/core/sequence/vector_exp.h"

namespace lodestar {

// Columns reduced in one pass, and values exponentiated in one loop. Both fit
// the L1 cache.
constexpr int64_t kSoftmaxColumns = 64;
constexpr int64_t kSoftmaxScratch = 2048;

template <typename T>
using SoftmaxValue = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

// Loops over the first `n` columns of `rows` rows with a stride of `stride`
// values. If kWidth is not 0, it is n and stride, so that a loop over one
// column costs no more than one without columns.
template <Isa kIsa, typename T, int kWidth>
struct SoftmaxRows {
  using V = SoftmaxValue<T>;

  LODESTAR_INLINE SoftmaxRows(int64_t rows_in, int64_t n_in, int64_t stride_in)
      : rows(rows_in),
        n(kWidth == 0 ? n_in : kWidth),
        stride(kWidth == 0 ? stride_in : kWidth) {}

  // Requires: rows >= 1.
  LODESTAR_INLINE void Maxima(const T* in, V* best) const {
    int64_t done = 0;
    if constexpr (std::is_same_v<T, V> && kWidth == 0) {
      for (; done + kVectorColumns<kIsa, V, 4> <= n;
           done += kVectorColumns<kIsa, V, 4>) {
        ReduceColumns<kIsa, 4, /*kMax=*/true>(in + done, stride, rows,
                                              best + done);
      }
      for (; done + kVectorColumns<kIsa, V, 1> <= n;
           done += kVectorColumns<kIsa, V, 1>) {
        ReduceColumns<kIsa, 1, /*kMax=*/true>(in + done, stride, rows,
                                              best + done);
      }
    }
    for (int64_t c = done; c < n; ++c) {
      best[c] = -std::numeric_limits<V>::infinity();
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = done; c < n; ++c) {
        const V x = static_cast<V>(in[r * stride + c]);
        best[c] = x > best[c] ? x : best[c];
      }
    }
  }

  // scratch [rows, n] = in - best.
  LODESTAR_INLINE void Differences(const T* in, const V* best,
                                   V* scratch) const {
    for (int64_t r = 0; r < rows; ++r) {
      // The scratch does not alias other memory.
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) {
        scratch[r * n + c] = static_cast<V>(in[r * stride + c]) - best[c];
      }
    }
  }

  // Sums the columns of `scratch` [rows, n]. Requires: rows >= 1.
  LODESTAR_INLINE void Sums(const V* scratch, V* sums) const {
    int64_t done = 0;
    if constexpr (kWidth == 0) {
      for (; done + kVectorColumns<kIsa, V, 4> <= n;
           done += kVectorColumns<kIsa, V, 4>) {
        ReduceColumns<kIsa, 4, /*kMax=*/false>(scratch + done, n, rows,
                                               sums + done);
      }
      for (; done + kVectorColumns<kIsa, V, 1> <= n;
           done += kVectorColumns<kIsa, V, 1>) {
        ReduceColumns<kIsa, 1, /*kMax=*/false>(scratch + done, n, rows,
                                               sums + done);
      }
    }
    for (int64_t c = done; c < n; ++c) sums[c] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = done; c < n; ++c) sums[c] += scratch[r * n + c];
    }
  }

  LODESTAR_INLINE void Quotients(const V* scratch, const V* sums,
                                 T* out) const {
    for (int64_t r = 0; r < rows; ++r) {
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) {
        out[r * stride + c] = static_cast<T>(scratch[r * n + c] / sums[c]);
      }
    }
  }

  LODESTAR_INLINE void AddProducts(const T* a, const T* b, V* sums) const {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        const int64_t i = r * stride + c;
        sums[c] += static_cast<V>(a[i]) * static_cast<V>(b[i]);
      }
    }
  }

  // out = probabilities * (gradient - sums).
  LODESTAR_INLINE void Gradients(const T* probabilities, const T* gradient,
                                 const V* sums, T* out) const {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        const int64_t i = r * stride + c;
        out[i] = static_cast<T>(static_cast<V>(probabilities[i]) *
                                (static_cast<V>(gradient[i]) - sums[c]));
      }
    }
  }

  int64_t rows;
  int64_t n;
  int64_t stride;
};

template <typename V>
LODESTAR_INLINE void Exponentials(int64_t count, V* scratch) {
  for (int64_t i = 0; i < count; ++i) scratch[i] = ExpOfNonPositive(scratch[i]);
}

// Processes sequences [first, last), whose rows fit the scratch together.
template <Isa kIsa, typename T, int kWidth>
LODESTAR_INLINE void SoftmaxShortSequences(const T* values, int64_t dim,
                                           Span<const int64_t> splits,
                                           int64_t first, int64_t last,
                                           T* out) {
  using V = SoftmaxValue<T>;
  V scratch[kSoftmaxScratch];
  V column[kSoftmaxColumns];
  const int64_t begin = splits[first];
  for (int64_t b = first; b < last; ++b) {
    const SoftmaxRows<kIsa, T, kWidth> rows(splits[b + 1] - splits[b], dim,
                                            dim);
    if (rows.rows == 0) continue;
    const T* in = values + splits[b] * rows.stride;
    rows.Maxima(in, column);
    rows.Differences(in, column, scratch + (splits[b] - begin) * rows.n);
  }
  Exponentials((splits[last] - begin) * dim, scratch);
  for (int64_t b = first; b < last; ++b) {
    const SoftmaxRows<kIsa, T, kWidth> rows(splits[b + 1] - splits[b], dim,
                                            dim);
    if (rows.rows == 0) continue;
    const V* in = scratch + (splits[b] - begin) * rows.n;
    rows.Sums(in, column);
    rows.Quotients(in, column, out + splits[b] * rows.stride);
  }
}

// Processes one sequence of any length. Exponentials are computed twice, which
// is cheaper than storing them, and a 16-bit float could not hold them.
template <Isa kIsa, typename T, int kWidth>
LODESTAR_INLINE void SoftmaxLongSequence(const T* values, int64_t dim,
                                         int64_t length, T* out) {
  if (length == 0) return;
  using V = SoftmaxValue<T>;
  V scratch[kSoftmaxScratch];
  V best[kSoftmaxColumns];
  V sums[kSoftmaxColumns];
  V scratch_sums[kSoftmaxColumns];
  for (int64_t c = 0; c < dim; c += kSoftmaxColumns) {
    const int64_t n = std::min(kSoftmaxColumns, dim - c);
    const int64_t step = kSoftmaxScratch / n;
    SoftmaxRows<kIsa, T, kWidth>(length, n, dim).Maxima(values + c, best);
    for (int64_t i = 0; i < n; ++i) sums[i] = 0;
    for (const bool write : {false, true}) {
      for (int64_t r = 0; r < length; r += step) {
        const SoftmaxRows<kIsa, T, kWidth> rows(std::min(step, length - r), n,
                                                dim);
        rows.Differences(values + r * dim + c, best, scratch);
        Exponentials(rows.rows * n, scratch);
        if (write) {
          rows.Quotients(scratch, sums, out + r * dim + c);
        } else {
          // A sum of partial sums is more accurate than one long sum.
          rows.Sums(scratch, scratch_sums);
          for (int64_t i = 0; i < n; ++i) sums[i] += scratch_sums[i];
        }
      }
    }
  }
}

// Processes sequences [first, last).
template <int kWidth>
struct SoftmaxSequences {
  template <Isa kIsa, typename T>
  LODESTAR_INLINE static void Run(const T* values, int64_t dim,
                                  Span<const int64_t> splits, int64_t first,
                                  int64_t last, T* out) {
    // Rows wider than the column buffer always take the long path.
    const int64_t fit = dim <= kSoftmaxColumns ? kSoftmaxScratch / dim : -1;
    for (int64_t b = first; b < last;) {
      int64_t end = b;
      while (end < last && splits[end + 1] - splits[b] <= fit) ++end;
      if (end > b) {
        SoftmaxShortSequences<kIsa, T, kWidth>(values, dim, splits, b, end,
                                               out);
        b = end;
      } else {
        SoftmaxLongSequence<kIsa, T, kWidth>(values + splits[b] * dim, dim,
                                             splits[b + 1] - splits[b],
                                             out + splits[b] * dim);
        ++b;
      }
    }
  }
};

// Processes sequences [first, last).
template <int kWidth>
struct SoftmaxGradients {
  template <Isa kIsa, typename T>
  LODESTAR_INLINE static void Run(const T* probabilities, const T* gradient,
                                  int64_t dim, Span<const int64_t> splits,
                                  int64_t first, int64_t last, T* out) {
    SoftmaxValue<T> sums[kSoftmaxColumns];
    for (int64_t b = first; b < last; ++b) {
      for (int64_t c = 0; c < dim; c += kSoftmaxColumns) {
        const SoftmaxRows<kIsa, T, kWidth> rows(
            splits[b + 1] - splits[b], std::min(kSoftmaxColumns, dim - c), dim);
        const int64_t at = splits[b] * dim + c;
        for (int64_t i = 0; i < rows.n; ++i) sums[i] = 0;
        rows.AddProducts(probabilities + at, gradient + at, sums);
        rows.Gradients(probabilities + at, gradient + at, sums, out + at);
      }
    }
  }
};

// Requires: splits are valid for N rows (lod.h). `isa` is only set to compare
// instruction sets.
template <typename T>
void SequenceSoftmax(const T* values, int64_t dim, Span<const int64_t> splits,
                     T* probabilities, const ParallelFor* parallel,
                     Isa isa = BestIsa()) {
  if (dim == 0) return;
  RunParallel(parallel, SequenceUnits(splits), 8 + 2 * dim,
              [&](int64_t begin, int64_t end) {
                const int64_t first = SequenceFrom(splits, begin);
                const int64_t last = SequenceFrom(splits, end);
                if (dim == 1) {
                  RunOn<SoftmaxSequences<1>>(isa, values, dim, splits, first,
                                             last, probabilities);
                } else {
                  RunOn<SoftmaxSequences<0>>(isa, values, dim, splits, first,
                                             last, probabilities);
                }
              });
}

// Computes the gradient of the values from the probabilities p and their
// gradient g: p * (g - the sum of p * g over the sequence). Requires: as
// SequenceSoftmax.
template <typename T>
void SequenceSoftmaxGradient(const T* probabilities, const T* gradient,
                             int64_t dim, Span<const int64_t> splits,
                             T* values_gradient, const ParallelFor* parallel,
                             Isa isa = BestIsa()) {
  if (dim == 0) return;
  RunParallel(
      parallel, SequenceUnits(splits), 4 + dim,
      [&](int64_t begin, int64_t end) {
        const int64_t first = SequenceFrom(splits, begin);
        const int64_t last = SequenceFrom(splits, end);
        if (dim == 1) {
          RunOn<SoftmaxGradients<1>>(isa, probabilities, gradient, dim, splits,
                                     first, last, values_gradient);
        } else {
          RunOn<SoftmaxGradients<0>>(isa, probabilities, gradient, dim, splits,
                                     first, last, values_gradient);
        }
      });
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_SOFTMAX_H_
