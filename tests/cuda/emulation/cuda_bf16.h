// CUDA's bfloat16 on the CPU.

#ifndef LODESTAR_TESTS_CUDA_EMULATION_CUDA_BF16_H_
#define LODESTAR_TESTS_CUDA_EMULATION_CUDA_BF16_H_

#include "tests/cuda/emulation/cuda_fp16.h"

using __nv_bfloat16 = lodestar::EmulatedFloat<lodestar::BFloat16>;
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }

#endif  // LODESTAR_TESTS_CUDA_EMULATION_CUDA_BF16_H_
