// Random numbers of tests and benchmarks.

#ifndef LODESTAR_TESTS_CUDA_RANDOM_H_
#define LODESTAR_TESTS_CUDA_RANDOM_H_

#include <cstdint>
#include <random>

namespace lodestar {

using Random = std::mt19937_64;

// Uniform in [low, high].
inline int64_t Draw(Random* random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(*random);
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CUDA_RANDOM_H_
