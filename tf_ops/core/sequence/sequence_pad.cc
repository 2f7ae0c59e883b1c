#include "tf_ops/core/sequence/sequence_pad.h"

namespace lodestar {

Status PaddedSteps(Span<const int64_t> splits, int64_t maxlen, int64_t* steps) {
  if (maxlen < -1) {
    return InvalidArgument(
        "`maxlen` must be at least 0, or -1 for the longest "
        "length, got ",
        maxlen, ".");
  }
  int64_t longest = 0;
  for (int64_t b = 0; b + 1 < splits.size(); ++b) {
    longest = std::max(longest, splits[b + 1] - splits[b]);
  }
  *steps = maxlen < 0 ? longest : maxlen;
  if (longest <= *steps) return Status();
  int64_t b = 0;
  while (splits[b + 1] - splits[b] <= maxlen) ++b;
  return InvalidArgument("`maxlen` is ", maxlen, ", but sequence ", b, " has ",
                         splits[b + 1] - splits[b], " rows.");
}

}  // namespace lodestar
