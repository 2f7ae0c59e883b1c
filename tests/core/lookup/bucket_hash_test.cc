#include "tf_ops/core/lookup/bucket_hash.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lodestar {
namespace {

// The first n letters of a fixed string, longer than every branch needs.
std::string Text(size_t n) {
  std::string text;
  while (text.size() < n) {
    text += static_cast<char>('a' + text.size() * 7 % 26);
  }
  return text;
}

// The published test vector: key 00 01 ... 0f, message 00 01 ... 0e.
TEST(BucketHashTest, SipHashReferenceVector) {
  std::string message;
  for (char c = 0; c < 15; ++c) message += c;
  EXPECT_EQ(SipHash24(0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL, message),
            0xa129ca6149be45e5ULL);
}

TEST(BucketHashTest, EveryLengthHashesDifferently) {
  std::vector<uint64_t> seen;
  for (size_t n = 0; n < 300; ++n) {
    for (uint64_t hash :
         {Fingerprint64(Text(n)), MurmurHash64A(0xdecafcaffeULL, Text(n))}) {
      for (uint64_t other : seen) ASSERT_NE(hash, other) << n;
      seen.push_back(hash);
    }
  }
}

// Saved models depend on these buckets.
TEST(BucketHashTest, ValuesAreFrozen) {
  EXPECT_EQ(Fingerprint64(""), 0x9ae16a3b2f90404fULL);
  EXPECT_EQ(MurmurHash64A(0, ""), 0u);
  BucketHash hash;
  ASSERT_TRUE(BucketHash::Create("fast", {}, &hash).ok());
  EXPECT_EQ(hash(int64_t{-12}), Fingerprint64("-12"));
  EXPECT_EQ(hash(INT64_MIN), Fingerprint64("-9223372036854775808"));
  const std::vector<int64_t> key = {5, -1};
  ASSERT_TRUE(BucketHash::Create("strong", key, &hash).ok());
  EXPECT_EQ(hash("-12"), SipHash24(5, ~uint64_t{0}, "-12"));
  EXPECT_EQ(hash(int64_t{-12}), hash("-12"));
  ASSERT_TRUE(BucketHash::Create("legacy", {}, &hash).ok());
  EXPECT_EQ(hash("-12"), MurmurHash64A(0xdecafcaffeULL, "-12"));
  EXPECT_EQ(hash(INT64_MIN), hash("-9223372036854775808"));
}

TEST(BucketHashTest, RemainderIsExact) {
  std::mt19937_64 rng(7);
  for (int i = 0; i < 200000; ++i) {
    const uint64_t divisor =
        i % 3 == 0 ? uint64_t{1} << (rng() % 64) : (rng() >> (rng() % 64)) | 1;
    const Remainder remainder(divisor);
    const uint64_t word = rng() >> (rng() % 64);
    const uint64_t words[] = {
        0,     1,           word,         divisor,
        ~word, divisor - 1, ~uint64_t{0}, divisor * (word % 7)};
    for (uint64_t n : words) {
      ASSERT_EQ(remainder(n), n % divisor) << n << " % " << divisor;
    }
  }
}

TEST(BucketHashTest, ReportsInvalidArguments) {
  BucketHash hash;
  const std::vector<int64_t> one = {1};
  EXPECT_NE(BucketHash::Create("md5", {}, &hash)
                .message()
                .find("or legacy, got 'md5'"),
            std::string::npos);
  EXPECT_NE(BucketHash::Create("strong", one, &hash)
                .message()
                .find("a key of two words, got 1"),
            std::string::npos);
  EXPECT_NE(
      BucketHash::Create("fast", one, &hash).message().find("takes no key"),
      std::string::npos);
}

}  // namespace
}  // namespace lodestar
