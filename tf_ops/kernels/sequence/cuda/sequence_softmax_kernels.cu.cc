#include <cmath>
#include <cstdint>

#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/number.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda/sequence_reduce_cuda.h"
#include "tf_ops/kernels/sequence/cuda/sequence_rows_cuda.h"

namespace lodestar {
namespace {

// Both directions reduce each sequence to one row of `reduced` and then compute
// every output row from that. Rows usually have one column, so packs are not
// used.
template <typename T>
struct SoftmaxInput {
  using Range = SequenceRange;
  DeviceSplits splits;
  int64_t dim;

  __device__ Range RangeOf(int64_t b) const { return splits.Range(b); }
  __device__ int64_t Find(int64_t row) const { return splits.Find(row); }
};

// The maximum and the sum of exp(x - maximum), in one sweep.
template <typename V>
struct Exponentials {
  V max;
  V sum;
};

template <typename T>
struct ExponentialsReducer : SoftmaxInput<T> {
  using V = ComputeOf<T>;
  using Acc = Exponentials<V>;
  const T* values;
  Acc* reduced;

  __device__ static Acc None() { return {static_cast<V>(-INFINITY), V(0)}; }

  template <int kVec>
  __device__ void Add(const SequenceRange&, int64_t row, int64_t c,
                      Acc (&accs)[kVec]) const {
    static_assert(kVec == 1, "");
    Acc& a = accs[0];
    const V x = ToCompute(values[row * this->dim + c]);
    if (x > a.max) {
      // x - x is 0, except NaN for infinity, whose softmax is NaN.
      a.sum = a.sum * exp(a.max - x) + (V(1) + (x - x));
      a.max = x;
    } else if (x != a.max || x != static_cast<V>(-INFINITY)) {
      a.sum += exp(x - a.max);
    }
  }

  __device__ static void Merge(Acc* a, const Acc& b) {
    if (a->max == b.max) {
      a->sum += b.sum;
    } else if (a->max > b.max) {
      a->sum += b.sum * exp(b.max - a->max);
    } else {
      a->sum = a->sum * exp(a->max - b.max) + b.sum;
      a->max = b.max;
    }
  }

  template <int kVec>
  __device__ void Finish(int64_t b, int64_t c, const SequenceRange&,
                         const Acc (&accs)[kVec]) const {
    reduced[b * this->dim + c] = accs[0];
  }
};

template <typename T>
struct SoftmaxRows {
  using Plan = int64_t;
  ExponentialsReducer<T> in;
  T* probabilities;

  __device__ Plan MakePlan(int64_t row) const { return in.splits.Find(row); }

  __device__ void Apply(Plan b, int64_t row, int64_t c) const {
    const int64_t i = row * in.dim + c;
    ComputeOf<T> p = 0;
    if (b >= 0) {
      const auto reduced = in.reduced[b * in.dim + c];
      p = exp(ToCompute(in.values[i]) - reduced.max) / reduced.sum;
    }
    probabilities[i] = RoundTo<T>(p);
  }
};

// The sum of probability x gradient.
template <typename T>
struct DotReducer : SoftmaxInput<T> {
  using Acc = ComputeOf<T>;
  const T* probabilities;
  const T* gradient;
  Acc* reduced;

  __device__ static Acc None() { return 0; }

  template <int kVec>
  __device__ void Add(const SequenceRange&, int64_t row, int64_t c,
                      Acc (&sums)[kVec]) const {
    static_assert(kVec == 1, "");
    const int64_t i = row * this->dim + c;
    sums[0] += ToCompute(probabilities[i]) * ToCompute(gradient[i]);
  }

  __device__ static void Merge(Acc* a, const Acc& b) { *a += b; }

  template <int kVec>
  __device__ void Finish(int64_t b, int64_t c, const SequenceRange&,
                         const Acc (&sums)[kVec]) const {
    reduced[b * this->dim + c] = sums[0];
  }
};

// probability x (gradient - the sum above)
template <typename T>
struct SoftmaxGradientRows {
  using Plan = int64_t;
  DotReducer<T> in;
  T* values_gradient;

  __device__ Plan MakePlan(int64_t row) const { return in.splits.Find(row); }

  __device__ void Apply(Plan b, int64_t row, int64_t c) const {
    const int64_t i = row * in.dim + c;
    ComputeOf<T> g = 0;
    if (b >= 0) {
      g = ToCompute(in.probabilities[i]) *
          (ToCompute(in.gradient[i]) - in.reduced[b * in.dim + c]);
    }
    values_gradient[i] = RoundTo<T>(g);
  }
};

// `reduced` is at the front of the scratch memory.
int64_t ReducedBytes(Number number, int64_t batch, int64_t dim) {
  const int64_t size = number == Number::kFloat64 ? 16 : 8;
  return DivideUp(batch * dim * size, 16) * 16;
}

template <template <typename> class Reducer, template <typename> class Rows,
          typename T>
cudaError_t LaunchSoftmax(cudaStream_t stream, Reducer<T> reducer,
                          Number number, void* scratch, void* out) {
  const DeviceSplits& splits = reducer.splits;
  reducer.reduced = static_cast<typename Reducer<T>::Acc*>(scratch);
  const cudaError_t error = LaunchReduce<1>(
      stream, reducer, splits.num_rows, splits.batch, reducer.dim,
      static_cast<char*>(scratch) +
          ReducedBytes(number, splits.batch, reducer.dim));
  if (error != cudaSuccess) return error;
  return LaunchRows(stream, Rows<T>{reducer, static_cast<T*>(out)},
                    splits.num_rows, reducer.dim);
}

}  // namespace

int64_t SequenceSoftmaxScratchBytes(Number number, int64_t dim,
                                    const DeviceSplits& splits) {
  return VisitFloat(number, [&](auto zero) {
    using T = decltype(zero);
    return ReducedBytes(number, splits.batch, dim) +
           ReduceScratchBytes<ExponentialsReducer<T>>(splits.num_rows, dim);
  });
}

cudaError_t LaunchSequenceSoftmax(cudaStream_t stream, Number number,
                                  const void* values, int64_t dim,
                                  const DeviceSplits& splits, void* scratch,
                                  void* probabilities) {
  return VisitFloat(number, [&](auto zero) {
    using T = decltype(zero);
    ExponentialsReducer<T> reducer{
        {splits, dim}, static_cast<const T*>(values), nullptr};
    return LaunchSoftmax<ExponentialsReducer, SoftmaxRows, T>(
        stream, reducer, number, scratch, probabilities);
  });
}

cudaError_t LaunchSequenceSoftmaxGradient(cudaStream_t stream, Number number,
                                          const void* probabilities,
                                          const void* gradient, int64_t dim,
                                          const DeviceSplits& splits,
                                          void* scratch,
                                          void* values_gradient) {
  return VisitFloat(number, [&](auto zero) {
    using T = decltype(zero);
    DotReducer<T> reducer{{splits, dim},
                          static_cast<const T*>(probabilities),
                          static_cast<const T*>(gradient),
                          nullptr};
    return LaunchSoftmax<DotReducer, SoftmaxGradientRows, T>(
        stream, reducer, number, scratch, values_gradient);
  });
}

}  // namespace lodestar
