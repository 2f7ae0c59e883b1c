// CUDA's half on the CPU.

#ifndef LODESTAR_TESTS_CUDA_EMULATION_CUDA_FP16_H_
#define LODESTAR_TESTS_CUDA_EMULATION_CUDA_FP16_H_

#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// A 16-bit float that converts to and from float.
template <typename Stored>
struct EmulatedFloat {
  EmulatedFloat() = default;
  EmulatedFloat(float x) : stored(RoundTo<Stored>(x)) {}
  operator float() const { return ToCompute(stored); }

  Stored stored;
};

}  // namespace lodestar

using __half = lodestar::EmulatedFloat<lodestar::Float16>;
inline float __half2float(__half x) { return x; }
inline __half __float2half_rn(float x) { return x; }

#endif  // LODESTAR_TESTS_CUDA_EMULATION_CUDA_FP16_H_
