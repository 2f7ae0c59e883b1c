// Parsing of numbers, independent of the locale, without allocation or
// exceptions.

#ifndef LODESTAR_TF_OPS_CORE_BASE_TEXT_NUMBER_H_
#define LODESTAR_TF_OPS_CORE_BASE_TEXT_NUMBER_H_

#include <cstdint>
#include <cstring>

namespace lodestar {

// kInexact: a number of magnitude 2^24 or more that no float equals. Below,
// only fractions are rounded.
enum class NumberError { kNone, kNotANumber, kOutOfRange, kInexact };

namespace text_number_internal {

// Converts eight digit values, first digit in the lowest byte, to a number.
// Joins pairs, then fours, then all eight, each step in parallel lanes.
inline uint64_t JoinEightDigits(uint64_t digits) {
  digits = digits * 10 + (digits >> 8);
  return (((digits & 0x000000ff000000ffULL) * 0x000f424000000064ULL) +
          (((digits >> 16) & 0x000000ff000000ffULL) * 0x0000271000000001ULL)) >>
         32;
}

// Reads up to eight digits at `p` and returns their count. Reads eight bytes
// without a branch per digit.
inline int ReadEightDigits(const char* p, uint64_t* value) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  word ^= 0x3030303030303030ULL;  // digits become 0 to 9, other bytes do not
  // Sets the high bit of each byte above 9. Only such a byte can carry, so the
  // lowest set bit is exact.
  const uint64_t others =
      ((word + 0x7676767676767676ULL) | word) & 0x8080808080808080ULL;
  const int count = others == 0 ? 8 : __builtin_ctzll(others) >> 3;
  *value = count == 0 ? 0 : JoinEightDigits(word << (64 - 8 * count));
  return count;
}

// Reads [begin, end), which must be digits, with a check for overflow.
NumberError ReadManyDigits(const char* begin, const char* end, uint64_t* value);

// From here on, a float does not hold every whole number.
constexpr double kEndOfExact = 1 << 24;

// Full implementation of ReadFloat.
NumberError ReadAnyFloat(const char** position, const char* end, float* value);

constexpr uint64_t kPowersOfTen[] = {1,      10,      100,      1000,     10000,
                                     100000, 1000000, 10000000, 100000000};
constexpr double kExactPowers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8};

}  // namespace text_number_internal

// Reads an optional sign and decimal digits from [*position, end) like C's
// strtoull: a leading '-' wraps modulo 2^64. Moves *position past the number;
// kNotANumber leaves it unchanged.
inline NumberError ReadUint64(const char** position, const char* end,
                              uint64_t* value) {
  const char* p = *position;
  const bool negative = p < end && *p == '-';
  if (p < end && (*p == '-' || *p == '+')) ++p;
  const char* const digits = p;
  uint64_t result = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  while (end - p >= 8) {
    uint64_t more = 0;
    const int count = text_number_internal::ReadEightDigits(p, &more);
    result = result * text_number_internal::kPowersOfTen[count] + more;
    p += count;
    if (count < 8) break;
  }
#endif
  while (p < end && *p >= '0' && *p <= '9') result = result * 10 + (*p++ - '0');
  if (p == digits) return NumberError::kNotANumber;
  *position = p;
  // Fewer digits cannot overflow. The check ignores leading zeros.
  if (p - digits > 19) {
    const NumberError error =
        text_number_internal::ReadManyDigits(digits, p, &result);
    if (error != NumberError::kNone) return error;
  }
  *value = negative ? 0 - result : result;
  return NumberError::kNone;
}

// Reads a decimal or hexadecimal ("0x1.8p3") float, "inf" or "nan", with an
// optional sign, like C's strtof in the "C" locale. Values too small for a
// float are rounded to a denormal or zero; values too large are kOutOfRange.
// Sets *value to the nearest float in case of kInexact.
inline NumberError ReadFloat(const char** position, const char* end,
                             float* value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  // Fast path: "123", "-1.25" or ".5" with at most eight digits on either side.
  constexpr int kMostBytes = 1 + 8 + 1 + 8;
  if (end - *position > kMostBytes) {
    const char* p = *position;
    const bool negative = *p == '-';
    p += negative | (*p == '+');
    uint64_t whole = 0;
    uint64_t part = 0;
    const int before = text_number_internal::ReadEightDigits(p, &whole);
    p += before;
    int behind = 0;
    if (*p == '.') {
      behind = text_number_internal::ReadEightDigits(++p, &part);
      p += behind;
    }
    const uint64_t digits =
        whole * text_number_internal::kPowersOfTen[behind] + part;
    // Both operands are exact doubles, so the quotient is the nearest double
    // (Clinger, How to Read Floating Point Numbers Accurately).
    const double wide = static_cast<double>(static_cast<int64_t>(digits)) /
                        text_number_internal::kExactPowers[behind];
    // Rounding it to float gives the float nearest to the decimal value,
    // because double rounding cannot cross a midpoint of two floats. The first
    // rounding moves the value by a relative error of at most 2^-53. Its
    // distance from any midpoint is larger: at least 1 / (10^8 * m) for a
    // midpoint m / 2^j with m < 2^25, and 1 / digits for an integer midpoint.
    // The number may continue with a ninth digit or an exponent; then the full
    // implementation reads it.
    if (before + behind > 0 && wide < text_number_internal::kEndOfExact &&
        digits <= (uint64_t{1} << 53) &&
        static_cast<unsigned char>(*p) <= ' ') {
      const float result = static_cast<float>(wide);
      *position = p;
      // Sets the sign without a branch, since signs are unpredictable.
      uint32_t word;
      std::memcpy(&word, &result, sizeof(word));
      word |= static_cast<uint32_t>(negative) << 31;
      std::memcpy(value, &word, sizeof(word));
      return NumberError::kNone;
    }
  }
#endif
  return text_number_internal::ReadAnyFloat(position, end, value);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_TEXT_NUMBER_H_
