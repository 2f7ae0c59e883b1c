#include "tf_ops/core/lookup/bucket_hash.h"

#include <charconv>
#include <cstring>
#include <utility>

namespace lodestar {
namespace {

uint64_t Load64(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

uint32_t Load32(const char* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

uint64_t RotateRight(uint64_t x, int bits) {
  return (x >> bits) | (x << (64 - bits));
}

uint64_t RotateLeft(uint64_t x, int bits) { return RotateRight(x, 64 - bits); }

// FarmHash (Pike, Alakuijala, 2014), the "na" variant that Fingerprint64 is.
constexpr uint64_t kFarm0 = 0xc3a5c85c97cb3127ULL;
constexpr uint64_t kFarm1 = 0xb492b66fbe98f273ULL;
constexpr uint64_t kFarm2 = 0x9ae16a3b2f90404fULL;

uint64_t ShiftMix(uint64_t x) { return x ^ (x >> 47); }

uint64_t FarmMix(uint64_t u, uint64_t v, uint64_t mul) {
  const uint64_t a = ShiftMix((u ^ v) * mul);
  return ShiftMix((v ^ a) * mul) * mul;
}

// Of 1 to 3 bytes: the first, the middle (n / 2) and the last one.
uint64_t FarmUpTo3(uint32_t first, uint32_t middle, uint32_t last, size_t n) {
  const uint32_t y = first + (middle << 8);
  const uint32_t z = static_cast<uint32_t>(n) + (last << 2);
  return ShiftMix(y * kFarm2 ^ z * kFarm0) * kFarm2;
}

// Of 4 to 7 bytes: the first and the last four.
uint64_t FarmUpTo7(uint64_t first, uint64_t last, size_t n) {
  return FarmMix(n + (first << 3), last, kFarm2 + n * 2);
}

// Of 8 to 16 bytes: the first and the last eight.
uint64_t FarmUpTo16(uint64_t first, uint64_t last, size_t n) {
  const uint64_t mul = kFarm2 + n * 2;
  const uint64_t a = first + kFarm2;
  return FarmMix(RotateRight(last, 37) * mul + a,
                 (RotateRight(a, 25) + last) * mul, mul);
}

// Of 17 to 32 bytes: the first two words of eight, and the last two.
uint64_t FarmUpTo32(uint64_t first, uint64_t second, uint64_t last_but_one,
                    uint64_t last, size_t n) {
  const uint64_t mul = kFarm2 + n * 2;
  const uint64_t a = first * kFarm1;
  const uint64_t c = last * mul;
  const uint64_t d = last_but_one * kFarm2;
  return FarmMix(RotateRight(a + second, 43) + RotateRight(c, 30) + d,
                 a + RotateRight(second + kFarm2, 18) + c, mul);
}

uint64_t FarmUpTo64(const char* s, size_t n) {
  const uint64_t mul = kFarm2 + n * 2;
  const uint64_t a = Load64(s) * kFarm2;
  const uint64_t b = Load64(s + 8);
  const uint64_t c = Load64(s + n - 8) * mul;
  const uint64_t d = Load64(s + n - 16) * kFarm2;
  const uint64_t y = RotateRight(a + b, 43) + RotateRight(c, 30) + d;
  const uint64_t z = FarmMix(y, a + RotateRight(b + kFarm2, 18) + c, mul);
  const uint64_t e = Load64(s + 16) * mul;
  const uint64_t f = Load64(s + 24);
  const uint64_t g = (y + Load64(s + n - 32)) * mul;
  const uint64_t h = (z + Load64(s + n - 24)) * mul;
  return FarmMix(RotateRight(e + f, 43) + RotateRight(g, 30) + h,
                 e + RotateRight(f + a, 18) + g, mul);
}

// The digits of x < 10^8, one a byte, the first one lowest: halves, then
// quarters, then single digits are parted in parallel lanes (the products by
// reciprocals are exact for numbers so small).
uint64_t EightDigits(uint64_t x) {
  const uint64_t halves = x / 10000 | x % 10000 << 32;
  const uint64_t hundreds = (halves * 10486 >> 20) & 0x0000007f0000007fULL;
  const uint64_t pairs = hundreds + ((halves - hundreds * 100) << 16);
  const uint64_t tens = (pairs * 103 >> 10) & 0x000f000f000f000fULL;
  return tens + ((pairs - tens * 10) << 8);
}

using Pair = std::pair<uint64_t, uint64_t>;

Pair FarmWeak32(const char* s, uint64_t a, uint64_t b) {
  const uint64_t w = Load64(s);
  const uint64_t x = Load64(s + 8);
  const uint64_t y = Load64(s + 16);
  const uint64_t z = Load64(s + 24);
  a += w;
  b = RotateRight(b + a + z, 21);
  const uint64_t c = a;
  a += x + y;
  b += RotateRight(a, 44);
  return {a + z, b + c};
}

}  // namespace

uint64_t Fingerprint64(std::string_view bytes) {
  const char* s = bytes.data();
  const size_t n = bytes.size();
  if (n <= 16) {
    if (n >= 8) return FarmUpTo16(Load64(s), Load64(s + n - 8), n);
    if (n >= 4) return FarmUpTo7(Load32(s), Load32(s + n - 4), n);
    if (n == 0) return kFarm2;
    const auto byte = [&](size_t i) {
      return static_cast<unsigned char>(s[i]);
    };
    return FarmUpTo3(byte(0), byte(n >> 1), byte(n - 1), n);
  }
  if (n <= 32) {
    return FarmUpTo32(Load64(s), Load64(s + 8), Load64(s + n - 16),
                      Load64(s + n - 8), n);
  }
  if (n <= 64) return FarmUpTo64(s, n);
  constexpr uint64_t kSeed = 81;
  uint64_t x = kSeed * kFarm2 + Load64(s);
  uint64_t y = kSeed * kFarm1 + 113;
  uint64_t z = ShiftMix(y * kFarm2 + 113) * kFarm2;
  Pair v = {0, 0};
  Pair w = {0, 0};
  // All blocks of 64 but the last, then the last 64 bytes.
  const char* const end = s + (n - 1) / 64 * 64;
  const char* const last = s + n - 64;
  for (; s != end; s += 64) {
    x = RotateRight(x + y + v.first + Load64(s + 8), 37) * kFarm1;
    y = RotateRight(y + v.second + Load64(s + 48), 42) * kFarm1;
    x ^= w.second;
    y += v.first + Load64(s + 40);
    z = RotateRight(z + w.first, 33) * kFarm1;
    v = FarmWeak32(s, v.second * kFarm1, x + w.first);
    w = FarmWeak32(s + 32, z + w.second, y + Load64(s + 16));
    std::swap(z, x);
  }
  const uint64_t mul = kFarm1 + ((z & 0xff) << 1);
  s = last;
  w.first += (n - 1) & 63;
  v.first += w.first;
  w.first += v.first;
  x = RotateRight(x + y + v.first + Load64(s + 8), 37) * mul;
  y = RotateRight(y + v.second + Load64(s + 48), 42) * mul;
  x ^= w.second * 9;
  y += v.first * 9 + Load64(s + 40);
  z = RotateRight(z + w.first, 33) * mul;
  v = FarmWeak32(s, v.second * mul, x + w.first);
  w = FarmWeak32(s + 32, z + w.second, y + Load64(s + 16));
  std::swap(z, x);
  return FarmMix(FarmMix(v.first, w.first, mul) + ShiftMix(y) * kFarm0 + z,
                 FarmMix(v.second, w.second, mul) + x, mul);
}

uint64_t FingerprintOfDecimal(int64_t number) {
  const bool negative = number < 0;
  const uint64_t magnitude =
      negative ? 0 - static_cast<uint64_t>(number) : number;
  // The text with leading zeros is 24 bytes in three words; those before the
  // first digit are not made.
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
  // Where the text begins in its first word, in bits.
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

// SipHash-2-4 (Aumasson, Bernstein: SipHash: a fast short-input PRF, 2012).
uint64_t SipHash24(uint64_t key_0, uint64_t key_1, std::string_view bytes) {
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
  for (; i + 8 <= bytes.size(); i += 8) absorb(Load64(bytes.data() + i));
  uint64_t tail = static_cast<uint64_t>(bytes.size()) << 56;
  for (int shift = 0; i < bytes.size(); ++i, shift += 8) {
    tail |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i]))
            << shift;
  }
  absorb(tail);
  v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) round();
  return v0 ^ v1 ^ v2 ^ v3;
}

// MurmurHash64A (Appleby, 2008).
uint64_t MurmurHash64A(uint64_t seed, std::string_view bytes) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995ULL;
  uint64_t h = seed ^ (bytes.size() * kMul);
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t k = Load64(bytes.data() + i) * kMul;
    k = ShiftMix(k) * kMul;
    h = (h ^ k) * kMul;
  }
  if (i < bytes.size()) {
    uint64_t tail = 0;
    std::memcpy(&tail, bytes.data() + i, bytes.size() - i);
    h = (h ^ tail) * kMul;
  }
  return ShiftMix(ShiftMix(h) * kMul);
}

Status BucketHash::Create(const std::string& name, Span<const int64_t> key,
                          BucketHash* out) {
  BucketHash hash;
  if (name == "stronghash") {
    if (key.size() != 2) {
      return InvalidArgument(
          "the hasher 'stronghash' takes a key of two words, "
          "found ",
          key.size());
    }
    hash.kind_ = Kind::kStrong;
    hash.key_0_ = static_cast<uint64_t>(key[0]);
    hash.key_1_ = static_cast<uint64_t>(key[1]);
  } else if (name == "fasthash" || name == "legacy") {
    if (!key.empty()) {
      return InvalidArgument("the hasher '", name, "' takes no key, found ",
                             key.size(), " words");
    }
    hash.kind_ = name == "legacy" ? Kind::kLegacy : Kind::kFast;
  } else {
    return InvalidArgument("unknown hasher '", name,
                           "', wanted fasthash, stronghash or legacy");
  }
  *out = hash;
  return Status();
}

uint64_t BucketHash::operator()(std::string_view bytes) const {
  switch (kind_) {
    case Kind::kFast:
      return Fingerprint64(bytes);
    case Kind::kStrong:
      return SipHash24(key_0_, key_1_, bytes);
    case Kind::kLegacy:
      break;
  }
  return MurmurHash64A(0xdecafcaffeULL, bytes);
}

uint64_t BucketHash::operator()(int64_t number) const {
  if (is_fast()) return FingerprintOfDecimal(number);
  char text[24];
  const auto end = std::to_chars(text, text + sizeof(text), number).ptr;
  return (*this)(std::string_view(text, end - text));
}

}  // namespace lodestar
