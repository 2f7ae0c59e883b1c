// Permutation: a pseudorandom order in constant memory.

#ifndef LODESTAR_TF_OPS_CORE_BASE_PERMUTATION_H_
#define LODESTAR_TF_OPS_CORE_BASE_PERMUTATION_H_

#include <cstdint>

#include "tf_ops/core/base/hash.h"

namespace lodestar {

// A seeded bijection of [0, n), evaluated per index: a Feistel network over the
// next power of 4, applied repeatedly until the result is below n (cycle
// walking).
class Permutation {
 public:
  Permutation(int64_t n, uint64_t seed) : n_(static_cast<uint64_t>(n)) {
    while (half_bits_ < 31 && (uint64_t{1} << (2 * half_bits_)) < n_) {
      ++half_bits_;
    }
    for (int round = 0; round < kRounds; ++round) {
      keys_[round] = Mix64(seed + (round + 1) * kGoldenGamma);
    }
  }

  // REQUIRES: 0 <= i < n.
  int64_t operator()(int64_t i) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t x = static_cast<uint64_t>(i);
    do {
      uint64_t left = x >> half_bits_;
      uint64_t right = x & mask;
      for (const uint64_t key : keys_) {
        const uint64_t next = left ^ (Mix64(right + key) & mask);
        left = right;
        right = next;
      }
      x = (left << half_bits_) | right;
    } while (x >= n_);
    return static_cast<int64_t>(x);
  }

 private:
  static constexpr int kRounds = 6;

  const uint64_t n_;
  int half_bits_ = 4;  // fewer bits would give too few different orders
  uint64_t keys_[kRounds];
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_PERMUTATION_H_
