// Removal of tokens from sequences.

#ifndef LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_ERASE_H_
#define LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_ERASE_H_

#include <algorithm>
#include <cstdint>
#include <unordered_set>

#include "tf_ops/core/base/span.h"

namespace lodestar {

// Sets smaller than this are searched linearly.
constexpr int64_t kHashedTokens = 8;

// Sets kept[i] to whether ids[i] is kept, and kept_splits to the splits of the
// kept ids. T is an integer or a string type that converts to Key, which must
// be hashable. May throw std::bad_alloc. Requires: splits are valid for
// ids.size() rows (lod.h); kept_splits has the size of splits; kept has the
// size of ids.
template <typename Key, typename T>
void SequenceErase(Span<const T> ids, Span<const int64_t> splits,
                   Span<const T> tokens, Span<bool> kept,
                   Span<int64_t> kept_splits) {
  std::unordered_set<Key> set;
  if (tokens.size() >= kHashedTokens) {
    for (const T& token : tokens) set.insert(static_cast<Key>(token));
  }
  int64_t count = 0;
  kept_splits[0] = 0;
  for (int64_t b = 0; b + 1 < splits.size(); ++b) {
    for (int64_t i = splits[b]; i < splits[b + 1]; ++i) {
      kept[i] = set.empty() ? std::find(tokens.begin(), tokens.end(), ids[i]) ==
                                  tokens.end()
                            : set.count(static_cast<Key>(ids[i])) == 0;
      count += kept[i];
    }
    kept_splits[b + 1] = count;
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SEQUENCE_SEQUENCE_ERASE_H_
