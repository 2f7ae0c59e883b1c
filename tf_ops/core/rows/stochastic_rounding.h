// Stochastic rounding of updated rows to 16-bit floats: a value becomes one of
// its two neighbors, the closer one more often, so that its mean stays the
// same. The random bits depend on seed, salt, step, id, column and value only:
// they are the same for any number of threads and shards, and on the GPU.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_STOCHASTIC_ROUNDING_H_
#define LODESTAR_TF_OPS_CORE_ROWS_STOCHASTIC_ROUNDING_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tf_ops/core/base/float16.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/host_device.h"

namespace lodestar {

template <typename T>
constexpr bool kIsHalf =
    std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// The rounding of a table's rows in one step.
struct StochasticRounding {
  bool enabled = false;  // otherwise to nearest
  uint64_t key = 0;

  // table_key: hash of seed and salt. shared: for shared rows.
  static StochasticRounding Of(uint64_t table_key, int64_t step, bool shared) {
    return {true, Mix64(table_key + (shared ? 2 : 1) * kGoldenGamma) ^
                      Mix64(static_cast<uint64_t>(step) + kGoldenGamma)};
  }
  // Returns the word of a row, by its id or the number of a shared row.
  LODESTAR_HOST_DEVICE uint32_t WordOf(int64_t id) const {
    return static_cast<uint32_t>(Mix64(Mix64(static_cast<uint64_t>(id)) ^ key));
  }
};

// Rounds x to a float that T represents exactly. NaN, infinity and values at
// the end of T's range are returned unchanged, to be rounded to nearest. `row`:
// the word of the row.
template <typename T>
LODESTAR_HOST_DEVICE inline float RoundStochastically(float x, uint32_t row,
                                                      int64_t column) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  // A 32-bit mixer of two multiplications (lowbias32), which vectorizes.
  uint32_t random = (row + static_cast<uint32_t>(column) * 0x9e3779b9u) ^ bits;
  random ^= random >> 16;
  random *= 0x7feb352du;
  random ^= random >> 15;
  random *= 0x846ca68bu;
  random ^= random >> 16;
  // Adding random bits below the last place of T, and dropping them.
  constexpr uint32_t kDropped = std::is_same_v<T, BFloat16> ? 0xffffu : 0x1fffu;
  constexpr uint32_t kLargest =
      std::is_same_v<T, BFloat16> ? 0x7f7f0000u : 0x477fe000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t rounded = (bits + (random & kDropped)) & ~kDropped;
  if constexpr (std::is_same_v<T, Float16>) {
    // Below 2^-14 the last place is 2^-24.
    float absolute;
    std::memcpy(&absolute, &magnitude, sizeof(absolute));
    const bool is_small = magnitude < 0x38800000u;
    const float places = is_small ? absolute * 0x1p24f : 0.0f;
    const float whole = static_cast<float>(static_cast<int32_t>(places));
    const float chance =
        (static_cast<float>(static_cast<int32_t>(random >> 8)) + 0.5f) *
        0x1p-24f;
    const float small =
        (chance < places - whole ? whole + 1.0f : whole) * 0x1p-24f;
    uint32_t small_bits;
    std::memcpy(&small_bits, &small, sizeof(small_bits));
    rounded = is_small ? small_bits | (bits & 0x80000000u) : rounded;
  }
  rounded = magnitude >= kLargest ? bits : rounded;
  float result;
  std::memcpy(&result, &rounded, sizeof(result));
  return result;
}

// Rounds columns [first, first + count) of the row of `id`, if T has 16 bits.
template <typename T>
inline void RoundColumns(const StochasticRounding& rounding, int64_t id,
                         int first, int count, float* columns) {
  if constexpr (kIsHalf<T>) {
    if (!rounding.enabled) return;
    const uint32_t row = rounding.WordOf(id);
    for (int c = 0; c < count; ++c) {
      columns[c] = RoundStochastically<T>(columns[c], row, first + c);
    }
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_STOCHASTIC_ROUNDING_H_
