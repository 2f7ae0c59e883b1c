// CPU time, for tests that compare two calls of one process.

#ifndef LODESTAR_TESTS_CORE_TESTING_CPU_TIME_H_
#define LODESTAR_TESTS_CORE_TESTING_CPU_TIME_H_

#include <time.h>

#include <algorithm>

namespace lodestar {

// Returns the CPU time of a call, the least of several.
template <typename Call>
double CpuSecondsOf(const Call& call) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
  };
  double least = 1e9;
  for (int run = 0; run < 5; ++run) {
    const double begin = now();
    call();
    least = std::min(least, now() - begin);
  }
  return least;
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_CPU_TIME_H_
