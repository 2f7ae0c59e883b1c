// FarmHash's Fingerprint64 of the decimal representation of an integer, and its
// parts for short byte strings.

#ifndef LODESTAR_TF_OPS_CORE_LOOKUP_DECIMAL_HASH_H_
#define LODESTAR_TF_OPS_CORE_LOOKUP_DECIMAL_HASH_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lodestar {
namespace hash_internal {

inline uint64_t Load64(const char* p) {
  uint64_t word;
  memcpy(&word, p, sizeof(word));
  return word;
}

inline uint32_t Load32(const char* p) {
  uint32_t word;
  memcpy(&word, p, sizeof(word));
  return word;
}

inline uint64_t RotateRight(uint64_t x, int bits) {
  return (x >> bits) | (x << (64 - bits));
}

inline uint64_t RotateLeft(uint64_t x, int bits) {
  return RotateRight(x, 64 - bits);
}

// FarmHash (Pike, Alakuijala, 2014), in the "na" variant that Fingerprint64
// uses.
constexpr uint64_t kFarm0 = 0xc3a5c85c97cb3127ULL;
constexpr uint64_t kFarm1 = 0xb492b66fbe98f273ULL;
constexpr uint64_t kFarm2 = 0x9ae16a3b2f90404fULL;

inline uint64_t ShiftMix(uint64_t x) { return x ^ (x >> 47); }

inline uint64_t FarmMix(uint64_t u, uint64_t v, uint64_t mul) {
  const uint64_t a = ShiftMix((u ^ v) * mul);
  return ShiftMix((v ^ a) * mul) * mul;
}

// For 1 to 3 bytes: the first, the middle (n / 2) and the last byte.
inline uint64_t FarmUpTo3(uint32_t first, uint32_t middle, uint32_t last,
                          size_t n) {
  const uint32_t y = first + (middle << 8);
  const uint32_t z = static_cast<uint32_t>(n) + (last << 2);
  return ShiftMix(y * kFarm2 ^ z * kFarm0) * kFarm2;
}

// For 4 to 7 bytes: the first and the last four.
inline uint64_t FarmUpTo7(uint64_t first, uint64_t last, size_t n) {
  return FarmMix(n + (first << 3), last, kFarm2 + n * 2);
}

// For 8 to 16 bytes: the first and the last eight.
inline uint64_t FarmUpTo16(uint64_t first, uint64_t last, size_t n) {
  const uint64_t mul = kFarm2 + n * 2;
  const uint64_t a = first + kFarm2;
  return FarmMix(RotateRight(last, 37) * mul + a,
                 (RotateRight(a, 25) + last) * mul, mul);
}

// For 17 to 32 bytes: the first two and the last two words of eight bytes.
inline uint64_t FarmUpTo32(uint64_t first, uint64_t second,
                           uint64_t last_but_one, uint64_t last, size_t n) {
  const uint64_t mul = kFarm2 + n * 2;
  const uint64_t a = first * kFarm1;
  const uint64_t c = last * mul;
  const uint64_t d = last_but_one * kFarm2;
  return FarmMix(RotateRight(a + second, 43) + RotateRight(c, 30) + d,
                 a + RotateRight(second + kFarm2, 18) + c, mul);
}

// Returns the digits of x < 10^8, one per byte, with the first digit in the
// lowest byte. Splits x into halves, quarters and single digits in parallel
// lanes; the multiplications by reciprocals are exact for numbers this small.
inline uint64_t EightDigits(uint64_t x) {
  const uint64_t halves = x / 10000 | x % 10000 << 32;
  const uint64_t hundreds = (halves * 10486 >> 20) & 0x0000007f0000007fULL;
  const uint64_t pairs = hundreds + ((halves - hundreds * 100) << 16);
  const uint64_t tens = (pairs * 103 >> 10) & 0x000f000f000f000fULL;
  return tens + ((pairs - tens * 10) << 8);
}

}  // namespace hash_internal

// Fingerprint64 of the number's decimal representation, computed without
// writing it to memory.
inline uint64_t FingerprintOfDecimal(int64_t number) {
  using namespace hash_internal;
  const bool negative = number < 0;
  const uint64_t magnitude =
      negative ? 0 - static_cast<uint64_t>(number) : number;
  // With leading zeros the digits are 24 bytes in three words; bytes before the
  // first digit are not computed.
  constexpr uint64_t kTenTo8 = 100000000;
  constexpr uint64_t kZeros = 0x3030303030303030ULL;
  const auto length = [](uint64_t digits) {
    return digits == 0 ? 1 : 8 - __builtin_ctzll(digits) / 8;
  };
  const uint64_t upper = magnitude / kTenTo8;
  uint64_t high = 0;
  uint64_t middle = 0;
  uint64_t low = EightDigits(magnitude % kTenTo8);
  size_t n = negative;
  if (upper == 0) {
    n += length(low);
  } else if (upper < kTenTo8) {
    middle = EightDigits(upper);
    n += 8 + length(middle);
  } else {
    high = EightDigits(upper / kTenTo8);
    middle = EightDigits(upper % kTenTo8);
    n += 16 + length(high);
  }
  // Bit offset of the first digit in its word.
  const int begin = static_cast<int>(24 - n) % 8 * 8;
  const uint64_t minus = static_cast<uint64_t>(negative) * ('0' - '-') << begin;
  const auto eight_from_begin = [begin](uint64_t word, uint64_t next) {
    return word >> begin | next << 1 << (63 - begin);
  };
  low += kZeros;
  if (n > 16) {
    high += kZeros - minus;
    middle += kZeros;
    return FarmUpTo32(eight_from_begin(high, middle),
                      eight_from_begin(middle, low), middle, low, n);
  }
  if (n > 8) {
    middle += kZeros - minus;
    return FarmUpTo16(eight_from_begin(middle, low), low, n);
  }
  low -= minus;
  if (n == 8) return FarmUpTo16(low, low, n);
  const uint64_t text = low >> begin;
  if (n >= 4) return FarmUpTo7(text & 0xffffffff, low >> 32, n);
  return FarmUpTo3(text & 0xff, text >> (n / 2 * 8) & 0xff, low >> 56, n);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_LOOKUP_DECIMAL_HASH_H_
