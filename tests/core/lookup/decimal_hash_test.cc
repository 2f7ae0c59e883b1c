#include "tf_ops/core/lookup/decimal_hash.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "tf_ops/core/lookup/bucket_hash.h"

namespace lodestar {
namespace {

TEST(DecimalHashTest, MatchesTheDecimalString) {
  const DecimalHash fast = {};
  const DecimalHash strong = {DecimalHash::Kind::kStrong, 5, ~uint64_t{0}};
  const DecimalHash legacy = {DecimalHash::Kind::kLegacy};
  std::mt19937_64 random(1);
  for (int i = 0; i < 5000; ++i) {
    // Numbers of all lengths.
    const int64_t number = i == 0   ? std::numeric_limits<int64_t>::min()
                           : i == 1 ? std::numeric_limits<int64_t>::max()
                           : i == 2 ? 0
                                    : static_cast<int64_t>(random()) >> i % 64;
    const std::string text = std::to_string(number);
    EXPECT_EQ(fast(number), Fingerprint64(text)) << text;
    EXPECT_EQ(strong(number), SipHash24(5, ~uint64_t{0}, text)) << text;
    EXPECT_EQ(legacy(number), MurmurHash64A(DecimalHash::kLegacySeed, text))
        << text;
  }
}

}  // namespace
}  // namespace lodestar
