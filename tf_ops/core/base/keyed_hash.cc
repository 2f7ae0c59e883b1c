#include "tf_ops/core/base/keyed_hash.h"

#include <chrono>
#include <exception>
#include <random>

#include "tf_ops/core/base/hash.h"

namespace lodestar {
namespace {

uint64_t DrawKey() {
  // Differs between processes even without a source of random numbers.
  uint64_t key = Mix64(static_cast<uint64_t>(
      std::chrono::steady_clock::now().time_since_epoch().count()));
  key ^= Mix64(reinterpret_cast<uintptr_t>(&key));
  try {
    std::random_device random;
    key ^= (uint64_t{random()} << 32) | random();
  } catch (const std::exception&) {
  }
  return key;
}

}  // namespace

uint64_t ProcessHashKey() {
  static const uint64_t key = DrawKey() | 1;
  return key;
}

}  // namespace lodestar
