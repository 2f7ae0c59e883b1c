// Concatenation of batches sequence by sequence: sequence b of the result is
// sequence b of the first batch, followed by sequence b of the second, and so
// on.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_CONCAT_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_CONCAT_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/core/sequence/sequence_units.h"

namespace lodestar {

// Returns the last splits of the result. levels[k] are the levels of batch k
// over num_rows[k] rows. All batches must have the same number of levels and
// the same upper levels. Returns InvalidArgument, with batch, level and index,
// if levels are invalid or differ, the numbers of sequences differ, or the
// number of rows overflows int64. Requires: at least one batch and one level.
inline Status SequenceConcatSplits(const std::vector<LodLevels>& levels,
                                   const std::vector<int64_t>& num_rows,
                                   std::vector<int64_t>* joined) {
  int64_t total = 0;
  const size_t last = levels[0].size() - 1;
  for (size_t k = 0; k < levels.size(); ++k) {
    LODESTAR_RETURN_IF_ERROR(
        Prefixed(ValidateLod(levels[k], num_rows[k]), "`xs[", k, "]`: "));
    for (size_t l = 0; l <= last; ++l) {
      const Span<const int64_t> first = levels[0][l];
      const Span<const int64_t> here = levels[k][l];
      if (here.size() != first.size()) {
        return InvalidArgument("`xs[", k, "]` has ", here.size() - 1,
                               " sequences at level ", l, ", but `xs[0]` has ",
                               first.size() - 1, ".");
      }
      if (l == last) break;
      for (int64_t i = 0; i < here.size(); ++i) {
        if (here[i] != first[i]) {
          return InvalidArgument("`xs[", k, "].lod[", l, "][", i, "]` must be ",
                                 first[i], " as in `xs[0]`, got ", here[i],
                                 ".");
        }
      }
    }
    if (num_rows[k] > std::numeric_limits<int64_t>::max() - total) {
      return InvalidArgument("`xs[", k, "]` has ", num_rows[k],
                             " rows, so the sum overflows int64.");
    }
    total += num_rows[k];
  }
  joined->assign(levels[0][last].begin(), levels[0][last].end());
  for (size_t k = 1; k < levels.size(); ++k) {
    for (size_t i = 0; i < joined->size(); ++i) {
      (*joined)[i] += levels[k][last][i];
    }
  }
  return Status();
}

// Calls move(k, row, joined_row, count) for runs that cover all rows once: rows
// [row, row + count) of batch k are rows [joined_row, joined_row + count) of
// the result. Requires: `joined` is the sum of the splits.
template <typename Move>
void SequenceConcatRuns(const LodLevels& splits, Span<const int64_t> joined,
                        int64_t dim, const Move& move,
                        const ParallelFor* parallel) {
  const auto piece = [&](int64_t b, int64_t first, int64_t last, bool) {
    int64_t joined_row = joined[b];  // of sequence b of batch k
    for (size_t k = 0; k < splits.size() && joined_row < last; ++k) {
      const int64_t length = splits[k][b + 1] - splits[k][b];
      const int64_t from = std::max(first, joined_row);
      const int64_t to = std::min(last, joined_row + length);
      if (from < to) move(k, splits[k][b] + from - joined_row, from, to - from);
      joined_row += length;
    }
  };
  ForSequencePieces(parallel, joined, 2 + dim / 4, piece);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_CONCAT_H_
