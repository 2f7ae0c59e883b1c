// The CUDA stream of GPU kernels. Empty unless LODESTAR_CUDA is set.

#ifndef LODESTAR_TF_OPS_KERNELS_BASE_CUDA_STREAM_H_
#define LODESTAR_TF_OPS_KERNELS_BASE_CUDA_STREAM_H_

#if LODESTAR_CUDA

#include <cuda_runtime.h>

#include "tensorflow/core/framework/device_base.h"
#include "tf_ops/kernels/base/kernel.h"
#include "xla/stream_executor/stream.h"

namespace lodestar {

// Returns the stream that a kernel's Compute must use.
inline cudaStream_t CudaStream(OpKernelContext* ctx) {
  return static_cast<cudaStream_t>(
      ctx->op_device_context()->stream()->platform_specific_handle().stream);
}

}  // namespace lodestar

#endif  // LODESTAR_CUDA

#endif  // LODESTAR_TF_OPS_KERNELS_BASE_CUDA_STREAM_H_
