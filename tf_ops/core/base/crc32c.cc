#include "tf_ops/core/base/crc32c.h"

#include <array>
#include <cstring>

// The x86-64 baseline has SSE4.2.
#if defined(__SSE4_2__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace lodestar {
namespace {

// Polynomials over GF(2) modulo Castagnoli's, bit-reflected: the highest bit is
// the coefficient of x^0.
constexpr uint32_t kPolynomial = 0x82f63b78u;
constexpr uint32_t kOne = 0x80000000u;

constexpr uint32_t TimesX(uint32_t a) {
  return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0);
}

constexpr uint32_t Times(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1, b = TimesX(b)) {
    if ((a & bit) != 0) product ^= b;
  }
  return product;
}

// x^(8 * bytes). Multiplying a checksum by it appends `bytes` zero bytes.
constexpr uint32_t ShiftOf(int64_t bytes) {
  uint32_t power = kOne >> 8;
  uint32_t result = kOne;
  for (; bytes > 0; bytes >>= 1, power = Times(power, power)) {
    if ((bytes & 1) != 0) result = Times(result, power);
  }
  return result;
}

uint64_t WordAt(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// [k][b]: the checksum of byte b followed by k zero bytes, without the initial
// and final inversion.
using ByteTables = std::array<std::array<uint32_t, 256>, 8>;

constexpr ByteTables MakeByteTables() {
  ByteTables tables = {};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int i = 0; i < 8; ++i) crc = TimesX(crc);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t crc = tables[k - 1][b];
      tables[k][b] = (crc >> 8) ^ tables[0][crc & 255];
    }
  }
  return tables;
}
constexpr ByteTables kByteTables = MakeByteTables();

// CRC instructions of the target: By8 and By1 extend a checksum by 8 bytes and
// by 1 byte.
#if defined(__SSE4_2__)
#define LODESTAR_HAS_CRC32C
inline uint32_t By8(uint32_t crc, uint64_t word) {
  return static_cast<uint32_t>(_mm_crc32_u64(crc, word));
}
inline uint32_t By1(uint32_t crc, char byte) {
  return _mm_crc32_u8(crc, static_cast<uint8_t>(byte));
}
#elif defined(__ARM_FEATURE_CRC32)
#define LODESTAR_HAS_CRC32C
inline uint32_t By8(uint32_t crc, uint64_t word) {
  return __crc32cd(crc, word);
}
inline uint32_t By1(uint32_t crc, char byte) {
  return __crc32cb(crc, static_cast<uint8_t>(byte));
}
#endif

#ifdef LODESTAR_HAS_CRC32C
// The instruction has a latency of three cycles and a throughput of one, so
// three parts of `kPart` bytes are processed in parallel and then joined.
constexpr int64_t kPart = 4096;

// [k][b]: the checksum whose byte k is b, and whose other bytes are 0, after
// kPart zero bytes.
using ShiftTables = std::array<std::array<uint32_t, 256>, 4>;

constexpr ShiftTables MakeShiftTables() {
  ShiftTables tables = {};
  const uint32_t shift = ShiftOf(kPart);
  for (uint32_t k = 0; k < 4; ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      tables[k][b] = Times(shift, b << (8 * k));
    }
  }
  return tables;
}

uint32_t PastPart(uint32_t crc) {
  static const ShiftTables tables = MakeShiftTables();
  return tables[0][crc & 255] ^ tables[1][(crc >> 8) & 255] ^
         tables[2][(crc >> 16) & 255] ^ tables[3][crc >> 24];
}

uint32_t ByInstructions(const char* data, int64_t bytes, uint32_t crc) {
  for (; bytes >= 3 * kPart; data += 3 * kPart, bytes -= 3 * kPart) {
    uint32_t second = 0;
    uint32_t third = 0;
    for (int64_t i = 0; i < kPart; i += 8) {
      crc = By8(crc, WordAt(data + i));
      second = By8(second, WordAt(data + kPart + i));
      third = By8(third, WordAt(data + 2 * kPart + i));
    }
    crc = PastPart(PastPart(crc) ^ second) ^ third;
  }
  for (; bytes >= 8; data += 8, bytes -= 8) crc = By8(crc, WordAt(data));
  for (; bytes > 0; ++data, --bytes) crc = By1(crc, *data);
  return crc;
}
#endif

}  // namespace

uint32_t PortableCrc32c(const void* data, int64_t bytes, uint32_t crc) {
  const ByteTables& t = kByteTables;
  const char* next = static_cast<const char*>(data);
  crc = ~crc;
  for (; bytes >= 8; next += 8, bytes -= 8) {
    const uint64_t word = WordAt(next) ^ crc;
    crc = 0;
    for (int k = 0; k < 8; ++k) crc ^= t[7 - k][(word >> (8 * k)) & 255];
  }
  for (; bytes > 0; ++next, --bytes) {
    crc = (crc >> 8) ^ t[0][(crc ^ static_cast<uint8_t>(*next)) & 255];
  }
  return ~crc;
}

uint32_t Crc32c(const void* data, int64_t bytes, uint32_t crc) {
#ifdef LODESTAR_HAS_CRC32C
  return ~ByInstructions(static_cast<const char*>(data), bytes, ~crc);
#else
  return PortableCrc32c(data, bytes, crc);
#endif
}

uint32_t JoinCrc32c(uint32_t first, uint32_t second, int64_t second_bytes) {
  return Times(ShiftOf(second_bytes), first) ^ second;
}

std::string HexOf(uint32_t crc) {
  std::string digits(8, '0');
  for (int i = 7; i >= 0; --i, crc >>= 4) {
    digits[i] = "0123456789abcdef"[crc & 15];
  }
  return digits;
}

}  // namespace lodestar
