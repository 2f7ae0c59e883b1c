// Number types and row splits for the *.cu.cc files of this folder.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_CUDA_KERNEL_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_CUDA_KERNEL_UTIL_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "tf_ops/core/base/pack.h"
#include "tf_ops/kernels/sequence/cuda/cuda_number.h"

namespace lodestar {

// The type that a T is computed in: float for 16-bit floats.
template <typename T>
using CudaValue =
    std::conditional_t<sizeof(T) == 2, float, std::remove_const_t<T>>;

template <typename T>
__device__ inline CudaValue<T> ToValue(T x) {
  return x;
}
template <>
__device__ inline float ToValue(__half x) {
  return __half2float(x);
}
template <>
__device__ inline float ToValue(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <typename T>
__device__ inline T FromValue(CudaValue<T> x) {
  return x;
}
template <>
__device__ inline __half FromValue<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 FromValue<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Elements of T in 16 bytes, the widest load.
template <typename T>
constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

inline bool IsAligned(const void* pointer, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Returns true if rows of `dim` elements at each of `pointers` can be accessed
// in whole packs.
template <typename T, typename... Pointers>
bool GoesInPacks(int64_t dim, const Pointers*... pointers) {
  return dim % kPackWidth<T> == 0 && (IsAligned(pointers, 16) && ...);
}

// Rows [first, last) of a sequence.
struct SequenceRange {
  int64_t first;
  int64_t last;
};

// Unchecked row splits in device memory. An offset outside [0, num_rows] is
// clamped to that range, so no row outside is ever accessed, and a sequence
// whose end is before its start is empty.
struct DeviceSplits {
  const int64_t* offsets;  // [batch + 1]
  int64_t batch;
  int64_t num_rows;

  __device__ int64_t Offset(int64_t i) const {
    const int64_t offset = offsets[i];
    return offset < 0 ? 0 : (offset > num_rows ? num_rows : offset);
  }

  __device__ SequenceRange Range(int64_t b) const {
    const int64_t first = Offset(b);
    const int64_t last = Offset(b + 1);
    return {first, last > first ? last : first};
  }

  // Returns the sequence that contains `row`. With invalid splits, returns any
  // such sequence, or -1.
  __device__ int64_t Find(int64_t row) const {
    int64_t low = 0;  // sequences before it start at or before `row`
    int64_t high = batch;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (Offset(middle) <= row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const int64_t b = low - 1;
    return b >= 0 && row < Offset(b + 1) && Offset(b) <= row ? b : -1;
  }
};

// Calls visit(T()) with the T of `number`, which must be a float type.
template <typename Visit>
auto VisitFloat(Number number, const Visit& visit) {
  switch (number) {
    case Number::kFloat16:
      return visit(__half());
    case Number::kBFloat16:
      return visit(__nv_bfloat16());
    case Number::kFloat64:
      return visit(double());
    default:
      return visit(float());
  }
}

// Calls visit(T()) with the T of `number`.
template <typename Visit>
auto VisitNumber(Number number, const Visit& visit) {
  switch (number) {
    case Number::kInt32:
      return visit(int32_t());
    case Number::kInt64:
      return visit(int64_t());
    default:
      return VisitFloat(number, visit);
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_CUDA_KERNEL_UTIL_H_
