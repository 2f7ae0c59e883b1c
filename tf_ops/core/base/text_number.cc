#include "tf_ops/core/base/text_number.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <system_error>

namespace lodestar {
namespace text_number_internal {

NumberError ReadManyDigits(const char* begin, const char* end,
                           uint64_t* value) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  *value = 0;
  for (const char* p = begin; p < end; ++p) {
    const uint64_t digit = *p - '0';
    if (*value > (kMax - digit) / 10) return NumberError::kOutOfRange;
    *value = *value * 10 + digit;
  }
  return NumberError::kNone;
}

NumberError ReadAnyFloat(const char** position, const char* end, float* value) {
  const char* p = *position;
  const bool negative = p < end && *p == '-';
  if (p < end && (*p == '-' || *p == '+')) ++p;
  // from_chars would accept a second sign.
  if (p == end || *p == '-' || *p == '+') return NumberError::kNotANumber;
  float result = 0;
  std::chars_format format = std::chars_format::general;
  if (end - p > 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
    format = std::chars_format::hex;
    p += 2;
    // from_chars would accept a sign, "inf" and "nan" here as well.
    if (*p != '.' && !std::isxdigit(static_cast<unsigned char>(*p))) {
      return NumberError::kNotANumber;
    }
  }
  const std::from_chars_result read = std::from_chars(p, end, result, format);
  if (read.ec == std::errc::invalid_argument) return NumberError::kNotANumber;
  *position = read.ptr;
  if (read.ec == std::errc::result_out_of_range) {
    // from_chars reports overflow and underflow alike. A double distinguishes
    // them; if that is out of range as well, the sign of the exponent does.
    double wide = 0;
    const auto again = std::from_chars(p, end, wide, format);
    const bool too_small = again.ec == std::errc()
                               ? std::fabs(wide) < 1
                               : std::find(p, read.ptr, '-') != read.ptr;
    if (!too_small) return NumberError::kOutOfRange;
    result = again.ec == std::errc() ? static_cast<float>(wide) : 0.0f;
  }
  *value = negative ? -result : result;
  return NumberError::kNone;
}

}  // namespace text_number_internal
}  // namespace lodestar
