// How core runs a loop on the caller's threads: kernels pass TensorFlow's
// intra-op pool, tests pass plain threads, nullptr runs it here.

#ifndef LODESTAR_TF_OPS_CORE_BASE_PARALLEL_H_
#define LODESTAR_TF_OPS_CORE_BASE_PARALLEL_H_

#include <cstdint>
#include <functional>

namespace lodestar {

// Calls body(begin, end) for disjoint ranges that cover [0, total), possibly at
// the same time on several threads, and returns when all are done.
// `cost` is a guess of the nanoseconds that one item takes.
using ParallelFor =
    std::function<void(int64_t total, int64_t cost,
                       const std::function<void(int64_t, int64_t)>& body)>;

// Allocates nothing itself. A body must not throw: it may run on a thread of
// which nobody would catch it. Nor may it wait for a mutex that someone else
// holds over such a loop: his share of work would wait behind this one.
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
