// Ids that someone who knows Mix64, but not the key of the process, would
// choose to slow down hash tables.

#ifndef LODESTAR_TESTS_CORE_TESTING_CHOSEN_IDS_H_
#define LODESTAR_TESTS_CORE_TESTING_CHOSEN_IDS_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/hash.h"

namespace lodestar {

// Returns the id with Mix64(id) == word.
inline int64_t IdOfMixed(uint64_t word) {
  word ^= word >> 31 ^ word >> 62;
  word *= 0x319642b2d24d8ec3ULL;
  word ^= word >> 27 ^ word >> 54;
  word *= 0x96de1b173f119089ULL;
  word ^= word >> 30 ^ word >> 60;
  return static_cast<int64_t>(word);
}

// Ids whose mixed ids differ only in their high 32 bits.
inline std::vector<int64_t> IdsWithEqualLowBits(int64_t count) {
  std::vector<int64_t> ids(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t high = Mix64(i + 1) >> 32;
    ids[i] = IdOfMixed(high << 32 | 0x1234567);
  }
  return ids;
}

// Ids whose mixed ids differ only in their low 32 bits.
inline std::vector<int64_t> IdsWithEqualHighBits(int64_t count) {
  std::vector<int64_t> ids(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t low = static_cast<uint32_t>(i * 0x9e3779b9);
    ids[i] = IdOfMixed(uint64_t{0x1234567} << 32 | low);
  }
  return ids;
}

inline std::vector<int64_t> RandomIds(int64_t count) {
  std::vector<int64_t> ids(count);
  for (int64_t i = 0; i < count; ++i) {
    ids[i] = static_cast<int64_t>(Mix64(Mix64(i) + kGoldenGamma));
  }
  return ids;
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_CHOSEN_IDS_H_
