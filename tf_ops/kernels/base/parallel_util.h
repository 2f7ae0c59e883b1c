// How kernels run core's loops: TensorFlow's intra-op pool, or threads of their
// own.

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

// A loop whose blocks its caller and helpers take in turn. Helpers that come
// late find none left: nobody waits for a thread that has yet to wake up.
class SharedLoop {
 public:
  using Body = std::function<void(int64_t, int64_t)>;

  SharedLoop(int64_t total, int64_t block, const Body* body)
      : total_(total),
        block_(block),
        num_blocks_((total + block - 1) / block),
        body_(body) {}

  int64_t num_blocks() const { return num_blocks_; }

  // Returns when no block is left to take.
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

  // Waits for the blocks that others have taken: a little without giving the
  // core away, which would take longer than most blocks.
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
  const Body* const body_;  // of the caller: read by who has taken a block
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> done_{0};
  absl::Notification all_done_;
};

// Valid while the kernel's Compute runs. TensorFlow's own ParallelFor leaves
// its caller idle, and cuts a loop in halves of halves, each by way of a queue.
inline ParallelFor IntraOpParallelFor(tensorflow::OpKernelContext* ctx) {
  auto* workers = ctx->device()->tensorflow_cpu_worker_threads()->workers;
  return [workers](int64_t total, int64_t cost, const SharedLoop::Body& body) {
    // Nanoseconds that pay for a helper, and blocks that even out what threads
    // get done.
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
      // No helper: a loop that writes to tables must not fail.
    }
    if (loop == nullptr) {
      body(0, total);
      return;
    }
    loop->TakeBlocks();
    loop->Wait();
  };
}

// Threads of its own, as many as the pool has. Work that waits for a disk would
// keep the pool's from everyone's lookups.
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
