// How kernels run core's loops: TensorFlow's intra-op pool, or threads of their
// own.

#ifndef LODESTAR_TF_OPS_KERNELS_BASE_PARALLEL_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_BASE_PARALLEL_UTIL_H_

#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tf_ops/core/base/parallel.h"

namespace lodestar {

// Valid while the kernel's Compute runs.
inline ParallelFor IntraOpParallelFor(tensorflow::OpKernelContext* ctx) {
  auto* workers = ctx->device()->tensorflow_cpu_worker_threads()->workers;
  return [workers](int64_t total, int64_t cost,
                   const std::function<void(int64_t, int64_t)>& body) {
    workers->ParallelFor(total, cost, body);
  };
}

// Threads of its own, as many as the pool has. Work that waits for a disk would
// keep the pool's from everyone's look-ups.
inline ParallelFor OwnThreads(tensorflow::OpKernelContext* ctx) {
  const int64_t count =
      ctx->device()->tensorflow_cpu_worker_threads()->num_threads;
  return [count](int64_t total, int64_t,
                 const std::function<void(int64_t, int64_t)>& body) {
    std::vector<std::thread> threads;
    // From where on no thread was begun.
    int64_t done = 0;
    try {
      threads.reserve(count);
      for (int64_t t = 1; t < count; ++t) {
        const int64_t end = total * t / count;
        if (done < end) threads.emplace_back(body, done, end);
        done = end;
      }
    } catch (const std::exception&) {
      // No memory, or too many threads.
    }
    if (done < total) body(done, total);
    for (std::thread& thread : threads) thread.join();
  };
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_BASE_PARALLEL_UTIL_H_
