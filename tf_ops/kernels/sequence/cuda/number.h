// Number types of the kernels. A launcher takes one of these and untyped
// pointers.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_NUMBER_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_NUMBER_H_

#include <cstdint>

#include "tf_ops/core/base/float16.h"

namespace lodestar {

enum class Number { kFloat16, kBFloat16, kFloat32, kFloat64, kInt32, kInt64 };

// Calls visit(T()) with the T of `number`, which must be a float type.
template <typename Visit>
auto VisitFloat(Number number, const Visit& visit) {
  switch (number) {
    case Number::kFloat16:
      return visit(Float16());
    case Number::kBFloat16:
      return visit(BFloat16());
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

inline int64_t SizeOf(Number number) {
  return VisitNumber(
      number, [](auto zero) { return static_cast<int64_t>(sizeof(zero)); });
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_NUMBER_H_
