#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tf_ops/core/base/pack.h"
#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/number.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda/sequence_reduce_cuda.h"
#include "tf_ops/kernels/sequence/cuda/sequence_rows_cuda.h"

namespace lodestar {
namespace {

// Accumulator type of a sum, the same as on the CPU (sequence_pool.h).
template <typename T>
using Sum =
    std::conditional_t<std::is_same_v<T, int32_t>, int64_t, ComputeOf<T>>;

template <typename S>
__device__ S Add(S a, S b) {
  if constexpr (std::is_integral_v<S>) {
    using Unsigned = std::make_unsigned_t<S>;
    return static_cast<S>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

// The divisor of a sum over `length` rows; 1 for combiner sum.
__device__ double DivisorOf(Combiner combiner, int64_t length) {
  return combiner == Combiner::kMean ? static_cast<double>(length)
         : combiner == Combiner::kSqrtn && length > 1
             ? sqrt(static_cast<double>(length))
             : 1.0;
}

template <typename S>
__device__ S Divide(Combiner combiner, S sum, double divisor) {
  if constexpr (!std::is_integral_v<S>) {
    return sum / static_cast<S>(divisor);
  } else if (combiner == Combiner::kMean) {
    return sum / static_cast<S>(divisor);
  } else {
    return combiner == Combiner::kSqrtn && divisor != 1.0
               ? static_cast<S>(static_cast<double>(sum) / divisor)
               : sum;
  }
}

// Common part of the reducers of pooling.
template <typename T>
struct PoolInput {
  using Range = SequenceRange;
  DeviceSplits splits;
  const T* values;
  int64_t dim;
  T pad_value;
  T* pooled;

  __device__ Range RangeOf(int64_t b) const { return splits.Range(b); }
  __device__ int64_t Find(int64_t row) const { return splits.Find(row); }
};

template <typename T>
struct SumReducer : PoolInput<T> {
  using Acc = Sum<T>;
  Combiner combiner;

  // -0 is the identity of addition for all numbers, including -0.
  __device__ static Acc None() { return static_cast<Acc>(-0.0); }

  template <int kVec>
  __device__ void Add(const SequenceRange&, int64_t row, int64_t c,
                      Acc (&sums)[kVec]) const {
    const Pack<T, kVec> x = LoadPack<kVec>(this->values + row * this->dim + c);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      sums[v] = lodestar::Add(sums[v], static_cast<Acc>(ToCompute(x.at[v])));
    }
  }

  __device__ static void Merge(Acc* a, const Acc& b) {
    *a = lodestar::Add(*a, b);
  }

  template <int kVec>
  __device__ void Finish(int64_t b, int64_t c, const SequenceRange& range,
                         const Acc (&sums)[kVec]) const {
    const int64_t length = range.last - range.first;
    Pack<T, kVec> result;
    if (length == 0) {
#pragma unroll
      for (int v = 0; v < kVec; ++v) result.at[v] = this->pad_value;
    } else {
      const double divisor = DivisorOf(combiner, length);
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        result.at[v] = RoundTo<T>(
            static_cast<ComputeOf<T>>(Divide(combiner, sums[v], divisor)));
      }
    }
    StorePack(result, this->pooled + b * this->dim + c);
  }
};

// The first of equal numbers wins, and NaN never replaces a number, so only a
// NaN in the first row remains; Finish handles that case.
template <typename T>
struct MaxReducer : PoolInput<T> {
  struct Acc {
    ComputeOf<T> best;
    int64_t row;  // -1: no row yet
  };
  int64_t* winners;

  __device__ static Acc None() { return {ComputeOf<T>(), -1}; }

  __device__ static bool Replaces(const Acc& a, ComputeOf<T> x) {
    return x > a.best || (a.row < 0 && x == x);
  }

  template <int kVec>
  __device__ void Add(const SequenceRange&, int64_t row, int64_t c,
                      Acc (&accs)[kVec]) const {
    const Pack<T, kVec> pack =
        LoadPack<kVec>(this->values + row * this->dim + c);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const ComputeOf<T> x = ToCompute(pack.at[v]);
      if (Replaces(accs[v], x)) accs[v] = {x, row};
    }
  }

  __device__ static void Merge(Acc* a, const Acc& b) {
    if (b.row < 0) return;
    if (Replaces(*a, b.best) || (b.best == a->best && b.row < a->row)) *a = b;
  }

  template <int kVec>
  __device__ void Finish(int64_t b, int64_t c, const SequenceRange& range,
                         const Acc (&accs)[kVec]) const {
    const int64_t out = b * this->dim + c;
    Pack<T, kVec> result;
    Pack<int64_t, kVec> rows;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      result.at[v] = this->pad_value;
      rows.at[v] = -1;
      if (range.first < range.last) {
        const T first = this->values[range.first * this->dim + c + v];
        const ComputeOf<T> x = ToCompute(first);
        const bool stays = x != x;
        result.at[v] = stays ? first : RoundTo<T>(accs[v].best);
        rows.at[v] = stays ? range.first : accs[v].row;
      }
    }
    StorePack(result, this->pooled + out);
#pragma unroll
    for (int v = 0; v < kVec; ++v) winners[out + v] = rows.at[v];
  }
};

// The first or last row of each sequence.
struct EndMap {
  DeviceSplits splits;
  bool last;

  __device__ int64_t Source(int64_t b) const {
    const SequenceRange range = splits.Range(b);
    return range.first == range.last ? -1 : last ? range.last - 1 : range.first;
  }
};

// Source row of the pooled gradient for each row of values: the row's sequence
// for sum, and only for the selected rows for first and last.
struct GradientMap {
  DeviceSplits splits;
  Combiner combiner;

  __device__ int64_t Source(int64_t row) const {
    const int64_t b = splits.Find(row);
    if (b < 0 || combiner == Combiner::kSum) return b;
    const SequenceRange range = splits.Range(b);
    return row == (combiner == Combiner::kFirst ? range.first : range.last - 1)
               ? b
               : -1;
  }
};

// For mean and sqrtn. The CPU divides once per sequence; here each row divides,
// because memory bandwidth is the limit.
template <typename T, int kVec>
struct DivideRows {
  struct Plan {
    int64_t sequence;
    double divisor;
  };
  DeviceSplits splits;
  Combiner combiner;
  const T* gradient;
  int64_t dim;
  T* out;

  __device__ Plan MakePlan(int64_t row) const {
    const int64_t b = splits.Find(row);
    if (b < 0) return {b, 1.0};
    const SequenceRange range = splits.Range(b);
    return {b, DivisorOf(combiner, range.last - range.first)};
  }

  __device__ void Apply(const Plan& plan, int64_t row, int64_t pack) const {
    Pack<T, kVec> x = {};
    if (plan.sequence >= 0) {
      x = LoadPack<kVec>(gradient + plan.sequence * dim + pack * kVec);
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        x.at[v] = RoundTo<T>(
            Divide<ComputeOf<T>>(combiner, ToCompute(x.at[v]), plan.divisor));
      }
    }
    StorePack(x, out + row * dim + pack * kVec);
  }
};

// For max. The gradient goes to the row named by the winner, so each row
// compares the winner with itself. Bits: an integer as wide as the numbers.
template <typename Bits>
struct MaxGradientRows {
  using Plan = int64_t;
  DeviceSplits splits;
  const Bits* gradient;
  const int64_t* winners;
  int64_t dim;
  Bits* out;

  __device__ Plan MakePlan(int64_t row) const { return splits.Find(row); }

  __device__ void Apply(Plan b, int64_t row, int64_t c) const {
    out[row * dim + c] =
        b >= 0 && winners[b * dim + c] == row ? gradient[b * dim + c] : Bits(0);
  }
};

bool CopiesRows(Combiner combiner) {
  return combiner == Combiner::kFirst || combiner == Combiner::kLast;
}

template <typename T>
cudaError_t LaunchPool(cudaStream_t stream, Combiner combiner, const T* values,
                       int64_t dim, const DeviceSplits& splits,
                       const void* pad_value, void* scratch, T* pooled,
                       int64_t* winners) {
  PoolInput<T> input{splits, values, dim, T(), pooled};
  std::memcpy(&input.pad_value, pad_value, sizeof(T));
  const auto launch = [&](const auto& reducer) {
    return VisitPack<T>(
        dim,
        [&](auto width) {
          return LaunchReduce<width()>(stream, reducer, splits.num_rows,
                                       splits.batch, dim, scratch);
        },
        values, pooled);
  };
  if (combiner == Combiner::kMax) return launch(MaxReducer<T>{input, winners});
  return launch(SumReducer<T>{input, combiner});
}

}  // namespace

int64_t SequencePoolScratchBytes(Combiner combiner, Number number,
                                 int64_t num_rows, int64_t dim) {
  if (CopiesRows(combiner)) return 0;
  return VisitNumber(number, [&](auto zero) {
    using T = decltype(zero);
    return combiner == Combiner::kMax
               ? ReduceScratchBytes<MaxReducer<T>>(num_rows, dim)
               : ReduceScratchBytes<SumReducer<T>>(num_rows, dim);
  });
}

cudaError_t LaunchSequencePool(cudaStream_t stream, Combiner combiner,
                               Number number, const void* values, int64_t dim,
                               const DeviceSplits& splits,
                               const void* pad_value, void* scratch,
                               void* pooled, int64_t* winners) {
  if (CopiesRows(combiner)) {
    return LaunchCopyRows(stream, EndMap{splits, combiner == Combiner::kLast},
                          values, splits.batch, dim * SizeOf(number),
                          RowFill::Number(pad_value, SizeOf(number)), pooled);
  }
  return VisitNumber(number, [&](auto zero) {
    using T = decltype(zero);
    return LaunchPool<T>(stream, combiner, static_cast<const T*>(values), dim,
                         splits, pad_value, scratch, static_cast<T*>(pooled),
                         winners);
  });
}

cudaError_t LaunchSequencePoolGradient(cudaStream_t stream, Combiner combiner,
                                       Number number, const void* gradient,
                                       int64_t dim, const DeviceSplits& splits,
                                       const int64_t* winners,
                                       void* values_gradient) {
  if (combiner == Combiner::kMax) {
    const auto launch = [&](auto zero) {
      using Bits = decltype(zero);
      const MaxGradientRows<Bits> op{splits, static_cast<const Bits*>(gradient),
                                     winners, dim,
                                     static_cast<Bits*>(values_gradient)};
      return LaunchRows(stream, op, splits.num_rows, dim);
    };
    return SizeOf(number) == 2   ? launch(uint16_t())
           : SizeOf(number) == 4 ? launch(uint32_t())
                                 : launch(uint64_t());
  }
  if (combiner != Combiner::kMean && combiner != Combiner::kSqrtn) {
    return LaunchCopyRows(stream, GradientMap{splits, combiner}, gradient,
                          splits.num_rows, dim * SizeOf(number), RowFill(),
                          values_gradient);
  }
  return VisitFloat(number, [&](auto zero) {
    using T = decltype(zero);
    const auto* in = static_cast<const T*>(gradient);
    auto* out = static_cast<T*>(values_gradient);
    return VisitPack<T>(
        dim,
        [&](auto width) {
          return LaunchRows(
              stream, DivideRows<T, width()>{splits, combiner, in, dim, out},
              splits.num_rows, dim / width());
        },
        in, out);
  });
}

}  // namespace lodestar
