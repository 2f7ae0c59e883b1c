#include "tf_ops/core/sequence/sequence_pad.h"

#include <limits>

namespace lodestar {

Status PaddedSteps(Span<const int64_t> splits, int64_t maxlen, int64_t* steps) {
  if (maxlen < -1) {
    return InvalidArgument("`maxlen` is ", maxlen,
                           ", wanted 0 or more, or -1 for the longest");
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
                         splits[b + 1] - splits[b], " rows");
}

Status UnpaddedSplits(Span<const int64_t> lengths, int64_t steps,
                      Span<int64_t> splits) {
  int64_t end = 0;
  splits[0] = 0;
  for (int64_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] < 0 || lengths[b] > steps) {
      return InvalidArgument("`lengths[", b, "]` is ", lengths[b],
                             ", wanted 0 to ", steps);
    }
    if (lengths[b] > std::numeric_limits<int64_t>::max() - end) {
      return InvalidArgument("`lengths[", b, "]` is ", lengths[b],
                             ", which takes the sum beyond int64");
    }
    end += lengths[b];
    splits[b + 1] = end;
  }
  return Status();
}

}  // namespace lodestar
