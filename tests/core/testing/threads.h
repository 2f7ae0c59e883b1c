// Distributes work over threads like a pool, also for small amounts of work.

#ifndef LODESTAR_TESTS_CORE_TESTING_THREADS_H_
#define LODESTAR_TESTS_CORE_TESTING_THREADS_H_

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "tf_ops/core/base/parallel.h"

namespace lodestar {

inline ParallelFor Threads(int count) {
  return [count](int64_t total, int64_t,
                 const std::function<void(int64_t, int64_t)>& body) {
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t) {
      const int64_t begin = total * t / count;
      const int64_t end = total * (t + 1) / count;
      if (begin < end) threads.emplace_back(body, begin, end);
    }
    for (std::thread& thread : threads) thread.join();
  };
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_THREADS_H_
