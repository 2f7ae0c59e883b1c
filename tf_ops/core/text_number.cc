#include "tf_ops/core/text_number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <system_error>

namespace lodestar {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Whether the eight bytes of `word` are all decimal digits: the high half of
// each is 3, and adding 6 does not carry into it.
bool AreEightDigits(uint64_t word) {
  return ((word & 0xf0f0f0f0f0f0f0f0ULL) |
          (((word + 0x0606060606060606ULL) & 0xf0f0f0f0f0f0f0f0ULL) >> 4)) ==
         0x3333333333333333ULL;
}

// The number that eight digits spell, first digit in the lowest byte: pairs,
// then fours, then all eight are joined, each step in parallel lanes.
uint64_t EightDigits(uint64_t word) {
  word -= 0x3030303030303030ULL;
  word = word * 10 + (word >> 8);
  return (((word & 0x000000ff000000ffULL) * 0x000f424000000064ULL) +
          (((word >> 16) & 0x000000ff000000ffULL) * 0x0000271000000001ULL)) >>
         32;
}

}  // namespace

NumberError ReadUint64(const char** position, const char* end,
                       uint64_t* value) {
  const char* p = *position;
  const bool negative = p < end && *p == '-';
  if (p < end && (*p == '-' || *p == '+')) ++p;
  const char* const digits = p;
  uint64_t result = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  while (end - p >= 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    if (!AreEightDigits(word)) break;
    result = result * 100000000 + EightDigits(word);
    p += 8;
  }
#endif
  while (p < end && IsDigit(*p)) result = result * 10 + (*p++ - '0');
  if (p == digits) return NumberError::kNotANumber;
  *position = p;
  if (p - digits > 19) {
    // Only here can the sum above have wrapped; leading zeros do not count.
    constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
    result = 0;
    for (const char* q = digits; q < p; ++q) {
      const uint64_t digit = *q - '0';
      if (result > (kMax - digit) / 10) return NumberError::kOutOfRange;
      result = result * 10 + digit;
    }
  }
  *value = negative ? 0 - result : result;
  return NumberError::kNone;
}

NumberError ReadFloat(const char** position, const char* end, float* value) {
  const char* p = *position;
  const bool negative = p < end && *p == '-';
  if (p < end && (*p == '-' || *p == '+')) ++p;
  // from_chars would take a second sign here.
  if (p == end || *p == '-' || *p == '+') return NumberError::kNotANumber;
  std::chars_format format = std::chars_format::general;
  if (end - p > 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
    format = std::chars_format::hex;
    p += 2;
  }
  float result = 0;
  const std::from_chars_result read = std::from_chars(p, end, result, format);
  if (read.ec == std::errc::invalid_argument) return NumberError::kNotANumber;
  *position = read.ptr;
  if (read.ec == std::errc::result_out_of_range) {
    // Too large and too small look alike; a double tells them apart, and where
    // it is out of range too, the exponent's sign does.
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

}  // namespace lodestar
