// Hashes with a random key of this process, for the places of keys in tables.
// Callers who choose keys cannot make them collide. Values differ from process
// to process, so no result may depend on them; use Mix64 (hash.h) for those.

#ifndef LODESTAR_TF_OPS_CORE_BASE_KEYED_HASH_H_
#define LODESTAR_TF_OPS_CORE_BASE_KEYED_HASH_H_

#include <cstdint>

#include "tf_ops/core/base/host_device.h"

namespace lodestar {

// Returns the key of this process, an odd number. Thread-safe.
uint64_t ProcessHashKey();

// Mix64 with the key as its first multiplier, at no further cost.
LODESTAR_HOST_DEVICE inline uint64_t KeyedHash(uint64_t word, uint64_t key) {
  word ^= word >> 30;
  word *= key;
  word ^= word >> 27;
  word *= 0x94d049bb133111ebULL;
  word ^= word >> 31;
  return word;
}

// A cheaper hash of words that are hashes already, of which only the high bits
// may be used. These seldom collide, however the words were chosen
// (Dietzfelbinger et al.: A Reliable Randomized Algorithm for the Closest-Pair
// Problem, 1997).
inline uint64_t MultiplyHash(uint64_t word, uint64_t key) { return word * key; }

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_KEYED_HASH_H_
