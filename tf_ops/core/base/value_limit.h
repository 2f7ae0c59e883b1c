// Limits of column values: integers in [0, limit).

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

// Tests the bits, because TensorFlow's threads flush subnormals to 0. A
// small integer that is read as a float is a subnormal.
inline bool IsSubnormal(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return (bits & 0x7f800000u) == 0 && (bits & 0x007fffffu) != 0;
}

inline bool WithinLimit(float value, int64_t limit) {
  return !IsSubnormal(value) && value >= 0 &&
         static_cast<double>(value) < static_cast<double>(limit) &&
         value == std::floor(value);
}

inline std::string WantedByLimit(int64_t limit) {
  return limit == 2 ? "0 or 1" : StrCat("an integer in [0, ", limit, ")");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_VALUE_LIMIT_H_
