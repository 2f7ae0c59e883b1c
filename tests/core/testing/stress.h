// Threads that repeat an action for a while. LODESTAR_STRESS_SECONDS sets the
// time (a few seconds by default).

#ifndef LODESTAR_TESTS_CORE_TESTING_STRESS_H_
#define LODESTAR_TESTS_CORE_TESTING_STRESS_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

namespace lodestar {

using Rng = std::mt19937_64;

// Returns `share` of the time for the whole file.
inline std::chrono::milliseconds StressTime(double share) {
  const char* seconds = std::getenv("LODESTAR_STRESS_SECONDS");
  return std::chrono::milliseconds(static_cast<int64_t>(
      1000 * share * (seconds != nullptr ? std::atof(seconds) : 4.0)));
}

// Runs each role repeatedly in its own thread until the time is up or an
// expectation fails.
inline void RunUntilTimeIsUp(
    double share, const std::vector<std::function<void(Rng*)>>& roles) {
  const auto end = std::chrono::steady_clock::now() + StressTime(share);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < roles.size(); ++t) {
    threads.emplace_back([&, t] {
      Rng rng(t);
      do {
        roles[t](&rng);
      } while (std::chrono::steady_clock::now() < end &&
               !testing::Test::HasFailure());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_STRESS_H_
