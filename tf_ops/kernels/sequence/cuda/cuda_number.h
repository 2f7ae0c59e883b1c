// Number types of the CUDA kernels. A launcher takes one of these and untyped
// pointers, so its header needs neither TensorFlow's nor CUDA's 16-bit types.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_CUDA_NUMBER_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_CUDA_NUMBER_H_

#include <cstdint>

namespace lodestar {

enum class Number { kFloat16, kBFloat16, kFloat32, kFloat64, kInt32, kInt64 };

inline int64_t SizeOf(Number number) {
  switch (number) {
    case Number::kFloat16:
    case Number::kBFloat16:
      return 2;
    case Number::kFloat32:
    case Number::kInt32:
      return 4;
    case Number::kFloat64:
    case Number::kInt64:
      break;
  }
  return 8;
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_CUDA_NUMBER_H_
