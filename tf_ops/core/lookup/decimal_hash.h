// The hashes of bucket_hash.h for bytes and for the decimal representation of
// an integer, for CPU and GPU.

#ifndef LODESTAR_TF_OPS_CORE_LOOKUP_DECIMAL_HASH_H_
#define LODESTAR_TF_OPS_CORE_LOOKUP_DECIMAL_HASH_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tf_ops/core/base/host_device.h"

namespace lodestar {
namespace hash_internal {

LODESTAR_HOST_DEVICE inline uint64_t Load64(const char* p) {
  uint64_t word;
  memcpy(&word, p, sizeof(word));
  return word;
}

LODESTAR_HOST_DEVICE inline uint32_t Load32(const char* p) {
  uint32_t word;
  memcpy(&word, p, sizeof(word));
  return word;
}

LODESTAR_HOST_DEVICE inline uint64_t RotateRight(uint64_t x, int bits) {
  return (x >> bits) | (x << (64 - bits));
}

LODESTAR_HOST_DEVICE inline uint64_t RotateLeft(uint64_t x, int bits) {
  return RotateRight(x, 64 - bits);
}

// FarmHash (Pike, Alakuijala, 2014), in the "na" variant that Fingerprint64
// uses.
constexpr uint64_t kFarm0 = 0xc3a5c85c97cb3127ULL;
constexpr uint64_t kFarm1 = 0xb492b66fbe98f273ULL;
constexpr uint64_t kFarm2 = 0x9ae16a3b2f90404fULL;

LODESTAR_HOST_DEVICE inline uint64_t ShiftMix(uint64_t x) {
  return x ^ (x >> 47);
}

LODESTAR_HOST_DEVICE inline uint64_t FarmMix(uint64_t u, uint64_t v,
                                             uint64_t mul) {
  const uint64_t a = ShiftMix((u ^ v) * mul);
  return ShiftMix((v ^ a) * mul) * mul;
}

// For 1 to 3 bytes: the first, the middle (n / 2) and the last byte.
LODESTAR_HOST_DEVICE inline uint64_t FarmUpTo3(uint32_t first, uint32_t middle,
                                               uint32_t last, size_t n) {
  const uint32_t y = first + (middle << 8);
  const uint32_t z = static_cast<uint32_t>(n) + (last << 2);
  return ShiftMix(y * kFarm2 ^ z * kFarm0) * kFarm2;
}

// For 4 to 7 bytes: the first and the last four.
LODESTAR_HOST_DEVICE inline uint64_t FarmUpTo7(uint64_t first, uint64_t last,
                                               size_t n) {
  return FarmMix(n + (first << 3), last, kFarm2 + n * 2);
}

// For 8 to 16 bytes: the first and the last eight.
LODESTAR_HOST_DEVICE inline uint64_t FarmUpTo16(uint64_t first, uint64_t last,
                                                size_t n) {
  const uint64_t mul = kFarm2 + n * 2;
  const uint64_t a = first + kFarm2;
  return FarmMix(RotateRight(last, 37) * mul + a,
                 (RotateRight(a, 25) + last) * mul, mul);
}

// For 17 to 32 bytes: the first two and the last two words of eight bytes.
LODESTAR_HOST_DEVICE inline uint64_t FarmUpTo32(uint64_t first, uint64_t second,
                                                uint64_t last_but_one,
                                                uint64_t last, size_t n) {
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
LODESTAR_HOST_DEVICE inline uint64_t EightDigits(uint64_t x) {
  const uint64_t halves = x / 10000 | x % 10000 << 32;
  const uint64_t hundreds = (halves * 10486 >> 20) & 0x0000007f0000007fULL;
  const uint64_t pairs = hundreds + ((halves - hundreds * 100) << 16);
  const uint64_t tens = (pairs * 103 >> 10) & 0x000f000f000f000fULL;
  return tens + ((pairs - tens * 10) << 8);
}

// Requires: x != 0.
LODESTAR_HOST_DEVICE inline int TrailingZeros(uint64_t x) {
#ifdef __CUDA_ARCH__
  return __ffsll(static_cast<long long>(x)) - 1;
#else
  return __builtin_ctzll(x);
#endif
}

// SipHash-2-4 (Aumasson, Bernstein: SipHash: a fast short-input PRF, 2012).
LODESTAR_HOST_DEVICE inline uint64_t SipHash24(uint64_t key_0, uint64_t key_1,
                                               const char* bytes, size_t n) {
  uint64_t v0 = key_0 ^ 0x736f6d6570736575ULL;
  uint64_t v1 = key_1 ^ 0x646f72616e646f6dULL;
  uint64_t v2 = key_0 ^ 0x6c7967656e657261ULL;
  uint64_t v3 = key_1 ^ 0x7465646279746573ULL;
  const auto round = [&] {
    v0 += v1;
    v1 = RotateLeft(v1, 13) ^ v0;
    v0 = RotateLeft(v0, 32);
    v2 += v3;
    v3 = RotateLeft(v3, 16) ^ v2;
    v0 += v3;
    v3 = RotateLeft(v3, 21) ^ v0;
    v2 += v1;
    v1 = RotateLeft(v1, 17) ^ v2;
    v2 = RotateLeft(v2, 32);
  };
  const auto absorb = [&](uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  };
  size_t i = 0;
  for (; i + 8 <= n; i += 8) absorb(Load64(bytes + i));
  uint64_t tail = static_cast<uint64_t>(n) << 56;
  for (int shift = 0; i < n; ++i, shift += 8) {
    tail |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i]))
            << shift;
  }
  absorb(tail);
  v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) round();
  return v0 ^ v1 ^ v2 ^ v3;
}

// MurmurHash64A (Appleby, 2008).
LODESTAR_HOST_DEVICE inline uint64_t MurmurHash64A(uint64_t seed,
                                                   const char* bytes,
                                                   size_t n) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995ULL;
  uint64_t h = seed ^ (n * kMul);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t k = Load64(bytes + i) * kMul;
    k = ShiftMix(k) * kMul;
    h = (h ^ k) * kMul;
  }
  if (i < n) {
    uint64_t tail = 0;
    memcpy(&tail, bytes + i, n - i);
    h = (h ^ tail) * kMul;
  }
  return ShiftMix(ShiftMix(h) * kMul);
}

}  // namespace hash_internal

// Fingerprint64 of the number's decimal representation, computed without
// writing it to memory.
LODESTAR_HOST_DEVICE inline uint64_t FingerprintOfDecimal(int64_t number) {
  using namespace hash_internal;
  const bool negative = number < 0;
  const uint64_t magnitude =
      negative ? 0 - static_cast<uint64_t>(number) : number;
  // With leading zeros the digits are 24 bytes in three words; bytes before the
  // first digit are not computed.
  constexpr uint64_t kTenTo8 = 100000000;
  constexpr uint64_t kZeros = 0x3030303030303030ULL;
  const auto length = [](uint64_t digits) {
    return digits == 0 ? 1 : 8 - TrailingZeros(digits) / 8;
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

// Hashes the decimal representation of an integer.
struct DecimalHash {
  enum class Kind { kFast, kStrong, kLegacy };
  static constexpr uint64_t kLegacySeed = 0xdecafcaffeULL;

  Kind kind = Kind::kFast;
  uint64_t key_0 = 0;  // of kStrong
  uint64_t key_1 = 0;

  LODESTAR_HOST_DEVICE uint64_t operator()(int64_t number) const {
    if (kind == Kind::kFast) return FingerprintOfDecimal(number);
    constexpr int kMost = 20;  // -2^63
    char text[kMost];
    int begin = kMost;
    uint64_t magnitude =
        number < 0 ? 0 - static_cast<uint64_t>(number) : number;
    do {
      text[--begin] = static_cast<char>('0' + magnitude % 10);
      magnitude /= 10;
    } while (magnitude != 0);
    if (number < 0) text[--begin] = '-';
    const size_t n = kMost - begin;
    return kind == Kind::kStrong
               ? hash_internal::SipHash24(key_0, key_1, text + begin, n)
               : hash_internal::MurmurHash64A(kLegacySeed, text + begin, n);
  }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_LOOKUP_DECIMAL_HASH_H_
