// Implementations of ParallelFor: TensorFlow's intra-op pool, or new threads.

#ifndef LODESTAR_TF_OPS_KERNELS_BASE_PARALLEL_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_BASE_PARALLEL_UTIL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tf_ops/core/base/parallel.h"

namespace lodestar {

// A loop whose caller and helpers take blocks until none is left. Late helpers
// find none, so the caller never waits for a thread to wake up.
class SharedLoop {
 public:
  using Body = std::function<void(int64_t, int64_t)>;

  SharedLoop(int64_t total, int64_t block, const Body* body)
      : total_(total),
        block_(block),
        num_blocks_((total + block - 1) / block),
        body_(body) {}

  int64_t num_blocks() const { return num_blocks_; }

  // Runs blocks until none is left.
  void TakeBlocks() {
    int64_t ran = 0;
    for (int64_t b;
         (b = next_.fetch_add(1, std::memory_order_relaxed)) < num_blocks_;
         ++ran) {
      const int64_t begin = b * block_;
      (*body_)(begin, std::min(total_, begin + block_));
    }
    if (ran > 0 &&
        done_.fetch_add(ran, std::memory_order_acq_rel) + ran == num_blocks_) {
      all_done_.Notify();
    }
  }

  // Waits for the blocks of helpers. Spins briefly first, because yielding the
  // core takes longer than most blocks.
  void Wait() {
    for (int spins = 0; spins < 2000; ++spins) {
      if (done_.load(std::memory_order_acquire) == num_blocks_) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    all_done_.WaitForNotification();
  }

 private:
  const int64_t total_;
  const int64_t block_;
  const int64_t num_blocks_;
  const Body* const body_;  // owned by the caller; valid while a block runs
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> done_{0};
  absl::Notification all_done_;
};

// Valid during the kernel's Compute. TensorFlow's own ParallelFor leaves its
// caller idle, and splits a loop recursively through a queue.
inline ParallelFor IntraOpParallelFor(tensorflow::OpKernelContext* ctx) {
  auto* workers = ctx->device()->tensorflow_cpu_worker_threads()->workers;
  return [workers](int64_t total, int64_t cost, const SharedLoop::Body& body) {
    // Minimum nanoseconds of work per helper, and number of blocks per thread
    // for load balancing.
    constexpr int64_t kLeast = 20000;
    constexpr int64_t kBlocks = 8;
    const int64_t threads = workers->NumThreads();
    const int64_t least =
        std::max<int64_t>(1, kLeast / std::max<int64_t>(1, cost));
    const int64_t block =
        std::max(least, (total - 1) / (threads * kBlocks) + 1);
    if (threads <= 1 || block >= total) {
      body(0, total);
      return;
    }
    std::shared_ptr<SharedLoop> loop;
    try {
      loop = std::make_shared<SharedLoop>(total, block, &body);
      const int64_t helpers = std::min(threads, loop->num_blocks()) - 1;
      for (int64_t h = 0; h < helpers; ++h) {
        workers->Schedule([loop] { loop->TakeBlocks(); });
      }
    } catch (const std::bad_alloc&) {
      // Runs without helpers: a loop that writes to tables must not fail.
    }
    if (loop == nullptr) {
      body(0, total);
      return;
    }
    loop->TakeBlocks();
    loop->Wait();
  };
}

// Starts as many threads as the pool has. For work that waits for a disk, which
// would otherwise block the pool's threads for lookups.
inline ParallelFor OwnThreads(tensorflow::OpKernelContext* ctx) {
  const int64_t count =
      ctx->device()->tensorflow_cpu_worker_threads()->num_threads;
  return [count](int64_t total, int64_t,
                 const std::function<void(int64_t, int64_t)>& body) {
    std::vector<std::thread> threads;
    // The work before this index has been given to threads.
    int64_t done = 0;
    try {
      threads.reserve(count);
      for (int64_t t = 1; t < count; ++t) {
        const int64_t end = total * t / count;
        if (done < end) threads.emplace_back(body, done, end);
        done = end;
      }
    } catch (const std::exception&) {
      // Out of memory or out of threads: the rest runs on this thread.
    }
    if (done < total) body(done, total);
    for (std::thread& thread : threads) thread.join();
  };
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_BASE_PARALLEL_UTIL_H_
