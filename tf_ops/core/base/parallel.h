// Interface between core and a thread pool. Kernels pass TensorFlow's intra-op
// pool, tests pass plain threads, nullptr runs the loop on the calling thread.

#ifndef LODESTAR_TF_OPS_CORE_BASE_PARALLEL_H_
#define LODESTAR_TF_OPS_CORE_BASE_PARALLEL_H_

#include <cstdint>
#include <functional>

namespace lodestar {

// Calls body(begin, end) for disjoint ranges that cover [0, total), possibly in
// parallel, and returns when all calls have returned. `cost` is the estimated
// time per item in nanoseconds.
using ParallelFor =
    std::function<void(int64_t total, int64_t cost,
                       const std::function<void(int64_t, int64_t)>& body)>;

// Does not allocate. `body` must not throw: no thread would catch the
// exception. It must not wait for a mutex that another thread holds across such
// a loop, because that loop's remaining work may be queued behind this call.
template <typename Body>
void RunParallel(const ParallelFor* parallel, int64_t total, int64_t cost,
                 const Body& body) {
  if (total <= 0) return;
  if (parallel == nullptr || !*parallel) {
    body(0, total);
  } else {
    (*parallel)(total, cost, std::cref(body));
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_PARALLEL_H_
