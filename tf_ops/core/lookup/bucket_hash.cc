#include "tf_ops/core/lookup/bucket_hash.h"

#include <cstring>
#include <utility>

namespace lodestar {
namespace {

using namespace hash_internal;

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
  // All blocks of 64 bytes except the last, then the last 64 bytes.
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

// Aumasson, Bernstein: SipHash: a fast short-input PRF, 2012.
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
  const size_t n = bytes.size();
  size_t i = 0;
  for (; i + 8 <= n; i += 8) absorb(Load64(bytes.data() + i));
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

// Appleby, 2008.
uint64_t MurmurHash64A(uint64_t seed, std::string_view bytes) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995ULL;
  const size_t n = bytes.size();
  uint64_t h = seed ^ (n * kMul);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t k = Load64(bytes.data() + i) * kMul;
    k = ShiftMix(k) * kMul;
    h = (h ^ k) * kMul;
  }
  if (i < n) {
    uint64_t tail = 0;
    memcpy(&tail, bytes.data() + i, n - i);
    h = (h ^ tail) * kMul;
  }
  return ShiftMix(ShiftMix(h) * kMul);
}

Status BucketHash::Create(const std::string& name, Span<const int64_t> key,
                          BucketHash* out) {
  BucketHash hash;
  if (name == "strong") {
    if (key.size() != 2) {
      return InvalidArgument(
          "the hasher 'strong' requires a key of two words, got ", key.size(),
          ".");
    }
    hash.kind_ = Kind::kStrong;
    hash.key_0_ = static_cast<uint64_t>(key[0]);
    hash.key_1_ = static_cast<uint64_t>(key[1]);
  } else if (name == "fast" || name == "legacy") {
    if (!key.empty()) {
      return InvalidArgument("the hasher '", name, "' takes no key, got ",
                             key.size(), " words.");
    }
    if (name == "legacy") hash.kind_ = Kind::kLegacy;
  } else {
    return InvalidArgument("the hasher must be fast, strong or legacy, got '",
                           name, "'.");
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

}  // namespace lodestar
