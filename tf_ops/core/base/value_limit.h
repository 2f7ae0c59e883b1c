// The limit of a column's values: whole numbers from 0.

#ifndef LODESTAR_TF_OPS_CORE_BASE_VALUE_LIMIT_H_
#define LODESTAR_TF_OPS_CORE_BASE_VALUE_LIMIT_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "tf_ops/core/base/status.h"

namespace lodestar {

inline bool WithinLimit(int64_t value, int64_t limit) {
  return value >= 0 && value < limit;
}

// By its bits: TensorFlow's threads take such a number for 0, and it is what a
// small integer looks like to one who reads it as a float.
inline bool IsSubnormal(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return (bits & 0x7f800000u) == 0 && (bits & 0x007fffffu) != 0;
}

inline bool WithinLimit(float value, int64_t limit) {
  return !IsSubnormal(value) && value >= 0 &&
         value < static_cast<float>(limit) && value == std::floor(value);
}

inline std::string WantedByLimit(int64_t limit) {
  return limit == 2 ? "0 or 1" : StrCat("a whole number from 0 to ", limit - 1);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_VALUE_LIMIT_H_
