// A hash with a random key of this process, for the places of keys in tables.
// Callers who choose keys cannot make them collide. Values differ from process
// to process, so no result may depend on them; use Mix64 (hash.h) for those.

#ifndef LODESTAR_TF_OPS_CORE_BASE_KEYED_HASH_H_
#define LODESTAR_TF_OPS_CORE_BASE_KEYED_HASH_H_

#include <cstdint>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/host_device.h"

namespace lodestar {

// Returns the key of this process. Thread-safe.
uint64_t ProcessHashKey();

LODESTAR_HOST_DEVICE inline uint64_t KeyedHash(uint64_t word, uint64_t key) {
  return Mix64(word ^ key);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_KEYED_HASH_H_
