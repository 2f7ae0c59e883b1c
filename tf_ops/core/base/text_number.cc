#include "tf_ops/core/base/text_number.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
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

namespace {

// The decimal digits of a number without zeros at either end, and the exponent
// of the last one.
struct Decimal {
  std::string digits;
  int64_t exponent = 0;
};

// Returns the decimal number at `p`, which has no sign.
Decimal ReadDecimal(const char* p, const char* end) {
  Decimal number;
  bool behind_point = false;
  for (; p < end && *p != 'e' && *p != 'E'; ++p) {
    if (*p == '.') {
      behind_point = true;
    } else {
      number.digits += *p;
      number.exponent -= behind_point;
    }
  }
  if (p < end) {
    ++p;
    if (*p == '+') ++p;
    int64_t exponent = 0;  // in range, because a float holds the number
    std::from_chars(p, end, exponent);
    number.exponent += exponent;
  }
  number.digits.erase(0, number.digits.find_first_not_of('0'));
  while (!number.digits.empty() && number.digits.back() == '0') {
    number.digits.pop_back();
    ++number.exponent;
  }
  return number;
}

// Returns whether the number [p, end), without its sign, is below 2^24 or
// equals `nearest`, the float nearest to it, which is 2^24 or more.
bool IsExact(const char* p, const char* end, std::chars_format format,
             float nearest) {
  if (format == std::chars_format::hex) {
    // A double holds 13 digits, and a float has no more than 7.
    std::string digits;
    for (const char* q = p; q < end && *q != 'p' && *q != 'P'; ++q) {
      if (*q != '.') digits += *q;
    }
    digits.erase(0, digits.find_first_not_of('0'));
    digits.erase(digits.find_last_not_of('0') + 1);
    double wide = 0;
    std::from_chars(p, end, wide, format);
    return digits.size() <= 13 && (wide == nearest || wide < kEndOfExact);
  }
  char text[64];
  const int size = std::snprintf(text, sizeof(text), "%.0f", nearest);
  const Decimal found = ReadDecimal(p, end);
  const Decimal wanted = ReadDecimal(text, text + size);
  return (found.digits == wanted.digits && found.exponent == wanted.exponent) ||
         (nearest == kEndOfExact && found.digits.rfind("16777215", 0) == 0);
}

}  // namespace

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
  if (result < kEndOfExact || !std::isfinite(result) ||
      IsExact(p, read.ptr, format, result)) {
    return NumberError::kNone;
  }
  return NumberError::kInexact;
}

}  // namespace text_number_internal
}  // namespace lodestar
