// TensorFlow's intra-op pool as core's ParallelFor.

#ifndef LODESTAR_TF_OPS_KERNELS_PARALLEL_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_PARALLEL_UTIL_H_

#include <functional>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tf_ops/core/parallel.h"

namespace lodestar {

// Valid while the kernel's Compute runs.
inline ParallelFor IntraOpParallelFor(tensorflow::OpKernelContext* ctx) {
  auto* workers = ctx->device()->tensorflow_cpu_worker_threads()->workers;
  return [workers](int64_t total, int64_t cost,
                   const std::function<void(int64_t, int64_t)>& body) {
    workers->ParallelFor(total, cost, body);
  };
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_PARALLEL_UTIL_H_
