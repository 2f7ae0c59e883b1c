#include "tf_ops/core/lookup/decimal_hash.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

#include "tf_ops/core/lookup/bucket_hash.h"

namespace lodestar {
namespace {

TEST(DecimalHashTest, MatchesTheDecimalString) {
  std::mt19937_64 rng(6);
  const auto check = [](int64_t number) {
    ASSERT_EQ(FingerprintOfDecimal(number),
              Fingerprint64(std::to_string(number)))
        << number;
  };
  for (int64_t i = -20000; i <= 20000; ++i) check(i);
  for (uint64_t power = 1, i = 0; i < 20; ++i, power *= 10) {
    for (int64_t near : {-1, 0, 1}) {
      check(static_cast<int64_t>(power) + near);
      check(-(static_cast<int64_t>(power) + near));
    }
  }
  for (int i = 0; i < 200000; ++i) {
    check(static_cast<int64_t>(rng()) >> (rng() % 64));
  }
  check(INT64_MIN);
  check(INT64_MAX);
}

}  // namespace
}  // namespace lodestar
