// Integer hashing with frozen values. Saved tables, salted ids and initial
// values depend on them; tests/core/base/hash_test.cc fails on any change.

#ifndef LODESTAR_TF_OPS_CORE_BASE_HASH_H_
#define LODESTAR_TF_OPS_CORE_BASE_HASH_H_

#include <cstdint>

#include "tf_ops/core/base/host_device.h"

namespace lodestar {

// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom
// Number Generators, OOPSLA 2014), a bijection of 64-bit words.
LODESTAR_HOST_DEVICE inline uint64_t Mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

// SplitMix64's increment: Mix64(seed + k * kGoldenGamma) is its k-th output.
constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15ULL;

// Maps a uniform word to [0, n) by its high bits, preserving order.
LODESTAR_HOST_DEVICE inline uint32_t FastRange32(uint32_t word, uint32_t n) {
  return static_cast<uint32_t>((static_cast<uint64_t>(word) * n) >> 32);
}
inline uint64_t FastRange64(uint64_t word, uint64_t n) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * n) >>
                               64);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_HASH_H_
