// A ParallelFor for tests: ranges of `step`, the last one first, on one thread.

#ifndef LODESTAR_TESTS_CORE_IN_STEPS_H_
#define LODESTAR_TESTS_CORE_IN_STEPS_H_

#include <algorithm>
#include <cstdint>
#include <functional>

#include "tf_ops/core/parallel.h"

namespace lodestar {

inline ParallelFor InSteps(int64_t step) {
  return [step](int64_t total, int64_t,
                const std::function<void(int64_t, int64_t)>& body) {
    for (int64_t begin = (total - 1) / step * step; begin >= 0; begin -= step) {
      body(begin, std::min(total, begin + step));
    }
  };
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_IN_STEPS_H_
