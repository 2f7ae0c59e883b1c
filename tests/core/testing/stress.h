// Threads that do what they do again and again. LODESTAR_STRESS_SECONDS says
// for how long (a few seconds unless set).

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

// `share` of the time that the whole file may take.
inline std::chrono::milliseconds StressTime(double share) {
  const char* seconds = std::getenv("LODESTAR_STRESS_SECONDS");
  return std::chrono::milliseconds(static_cast<int64_t>(
      1000 * share * (seconds != nullptr ? std::atof(seconds) : 4.0)));
}

// Every role in a thread of its own, again and again until the time is up or an
// expectation has failed.
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
