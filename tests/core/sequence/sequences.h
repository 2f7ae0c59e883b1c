// Random sequences for tests, and partitions of the work on them.

#ifndef LODESTAR_TESTS_CORE_SEQUENCE_SEQUENCES_H_
#define LODESTAR_TESTS_CORE_SEQUENCE_SEQUENCES_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "tf_ops/core/base/parallel.h"

namespace lodestar {

// Returns the splits of `batch` short sequences; the second one may be long.
inline std::vector<int64_t> RandomSplits(std::mt19937_64* random,
                                         int64_t batch) {
  std::vector<int64_t> splits = {0};
  for (int64_t b = 0; b < batch; ++b) {
    splits.push_back(splits.back() +
                     static_cast<int64_t>((*random)() % (b == 1 ? 40 : 4)));
  }
  return splits;
}

// Runs ranges of `step` items on this thread, the last one first.
inline ParallelFor InSteps(int64_t step) {
  return [step](int64_t total, int64_t,
                const std::function<void(int64_t, int64_t)>& body) {
    for (int64_t begin = (total - 1) / step * step; begin >= 0; begin -= step) {
      body(begin, std::min(total, begin + step));
    }
  };
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_SEQUENCE_SEQUENCES_H_
