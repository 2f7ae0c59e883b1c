// How a bag or a sequence of rows is combined into one row.

#ifndef LODESTAR_TF_OPS_CORE_BASE_COMBINER_H_
#define LODESTAR_TF_OPS_CORE_BASE_COMBINER_H_

#include <string>

#include "tf_ops/core/base/status.h"

namespace lodestar {

enum class Combiner { kSum, kMean, kSqrtn, kMax, kFirst, kLast };

// Returns InvalidArgument for any other name.
inline Status ParseCombiner(const std::string& name, Combiner* out) {
  constexpr const char* kNames[] = {"sum", "mean",  "sqrtn",
                                    "max", "first", "last"};
  for (int i = 0; i < 6; ++i) {
    if (name == kNames[i]) {
      *out = static_cast<Combiner>(i);
      return Status();
    }
  }
  return InvalidArgument("unknown combiner '", name,
                         "'. Use sum, mean, sqrtn, ", "max, first or last.");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_COMBINER_H_
