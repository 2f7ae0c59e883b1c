#include "tf_ops/core/base/crc32c.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

using Checksum = uint32_t (*)(const void*, int64_t, uint32_t);
constexpr Checksum kWays[] = {Crc32c, PortableCrc32c};

std::string RandomBytes(int64_t size) {
  std::mt19937 random(static_cast<uint32_t>(size));
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Bitwise polynomial division.
uint32_t Reference(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    }
  }
  return ~crc;
}

TEST(Crc32cTest, MatchesRfc3720) {
  std::string ascending;
  std::string descending;
  for (int i = 0; i < 32; ++i) {
    ascending.push_back(static_cast<char>(i));
    descending.push_back(static_cast<char>(31 - i));
  }
  const unsigned char read_command[48] = {
      0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
      0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  for (const Checksum crc : kWays) {
    EXPECT_EQ(crc(std::string(32, '\0').data(), 32, 0), 0x8a9136aau);
    EXPECT_EQ(crc(std::string(32, '\xff').data(), 32, 0), 0x62a8ab43u);
    EXPECT_EQ(crc(ascending.data(), 32, 0), 0x46dd794eu);
    EXPECT_EQ(crc(descending.data(), 32, 0), 0x113fdb5cu);
    EXPECT_EQ(crc(read_command, 48, 0), 0xd9963a56u);
    EXPECT_EQ(crc("123456789", 9, 0), 0xe3069283u);
    EXPECT_EQ(crc(nullptr, 0, 0), 0u);
  }
}

// Sizes around those where the algorithm changes, at unaligned addresses.
TEST(Crc32cTest, AllImplementationsAgree) {
  for (const int64_t around : {0, 16, 4096, 12288, 24576, 100000}) {
    for (int64_t size = std::max<int64_t>(0, around - 9); size < around + 9;
         ++size) {
      const std::string bytes = RandomBytes(size);
      const uint32_t wanted = Reference(bytes);
      for (const Checksum crc : kWays) {
        ASSERT_EQ(crc(bytes.data(), size, 0), wanted) << size;
        const int64_t cut = size / 3;
        ASSERT_EQ(
            crc(bytes.data() + cut, size - cut, crc(bytes.data(), cut, 0)),
            wanted)
            << size;
      }
    }
  }
}

TEST(Crc32cTest, JoinsTwoChecksums) {
  const std::string bytes = RandomBytes(70001);
  const uint32_t whole = Crc32c(bytes.data(), bytes.size());
  for (const int64_t cut : {0, 1, 7, 8, 4096, 65536, 70000, 70001}) {
    const int64_t rest = static_cast<int64_t>(bytes.size()) - cut;
    EXPECT_EQ(JoinCrc32c(Crc32c(bytes.data(), cut),
                         Crc32c(bytes.data() + cut, rest), rest),
              whole)
        << cut;
  }
}

}  // namespace
}  // namespace lodestar
