// Random sequences for tests and benchmarks of the CUDA kernels.

#ifndef LODESTAR_TESTS_CUDA_SEQUENCE_DATA_H_
#define LODESTAR_TESTS_CUDA_SEQUENCE_DATA_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "tests/cuda/random.h"

namespace lodestar {

inline std::vector<int64_t> SplitsOf(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> splits = {0};
  for (const int64_t length : lengths) splits.push_back(splits.back() + length);
  return splits;
}

// `batch` lengths from 0 to twice the mean.
inline std::vector<int64_t> RandomLengths(Random* random, int64_t batch,
                                          int64_t mean) {
  std::vector<int64_t> lengths(batch);
  for (int64_t& length : lengths) length = Draw(random, 0, 2 * mean);
  return lengths;
}

// Small multiples of 1/8, or integers: their sums are exact in any order, and
// equal values are common.
template <typename T>
std::vector<T> ExactNumbers(Random* random, int64_t size) {
  std::vector<T> numbers(size);
  for (T& number : numbers) {
    const int64_t eighths = Draw(random, -64, 64);
    if constexpr (std::is_integral_v<T>) {
      number = static_cast<T>(eighths);
    } else {
      number = static_cast<T>(static_cast<float>(eighths) / 8);
    }
  }
  return numbers;
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CUDA_SEQUENCE_DATA_H_
