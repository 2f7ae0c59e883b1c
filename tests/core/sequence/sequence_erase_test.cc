#include "tf_ops/core/sequence/sequence_erase.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace lodestar {
namespace {

TEST(SequenceEraseTest, MatchesANaiveLoop) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> ids;
    std::vector<int64_t> splits = {0};
    std::vector<int64_t> tokens(random() % (2 * kHashedTokens));
    for (int64_t& token : tokens) token = random() % 30;
    std::vector<bool> wanted;
    std::vector<int64_t> wanted_splits = {0};
    for (int64_t b = random() % 6; b-- > 0;) {
      wanted_splits.push_back(wanted_splits.back());
      for (int64_t n = random() % 6; n-- > 0;) {
        ids.push_back(random() % 30);
        wanted.push_back(std::count(tokens.begin(), tokens.end(), ids.back()) ==
                         0);
        wanted_splits.back() += wanted.back();
      }
      splits.push_back(static_cast<int64_t>(ids.size()));
    }
    const auto kept = std::make_unique<bool[]>(ids.size());
    std::vector<int64_t> kept_splits(splits.size(), -7);
    SequenceErase<int64_t>(
        Span<const int64_t>(ids), splits, Span<const int64_t>(tokens),
        Span<bool>(kept.get(), static_cast<int64_t>(ids.size())),
        Span<int64_t>(kept_splits));
    EXPECT_EQ(std::vector<bool>(kept.get(), kept.get() + ids.size()), wanted);
    EXPECT_EQ(kept_splits, wanted_splits);
  }
}

}  // namespace
}  // namespace lodestar
