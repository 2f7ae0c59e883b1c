// Numbers in text, without locale, allocation or exceptions.

#ifndef LODESTAR_TF_OPS_CORE_BASE_TEXT_NUMBER_H_
#define LODESTAR_TF_OPS_CORE_BASE_TEXT_NUMBER_H_

#include <cstdint>
#include <cstring>

namespace lodestar {

enum class NumberError { kNone, kNotANumber, kOutOfRange };

namespace text_number_internal {

// The number that eight digit values spell, first digit in the lowest byte:
// pairs, then fours, then all eight are joined, each step in parallel lanes.
inline uint64_t JoinEightDigits(uint64_t digits) {
  digits = digits * 10 + (digits >> 8);
  return (((digits & 0x000000ff000000ffULL) * 0x000f424000000064ULL) +
          (((digits >> 16) & 0x000000ff000000ffULL) * 0x0000271000000001ULL)) >>
         32;
}

// Reads the digits at `p`, eight at most; returns how many there are. Reads
// eight bytes, without a branch for each.
inline int ReadEightDigits(const char* p, uint64_t* value) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  word ^= 0x3030303030303030ULL;  // digits become 0 to 9, no other byte does
  // The high bit of each byte above 9. A carry can only come from such a byte,
  // so the lowest one is right.
  const uint64_t others =
      ((word + 0x7676767676767676ULL) | word) & 0x8080808080808080ULL;
  const int count = others == 0 ? 8 : __builtin_ctzll(others) >> 3;
  *value = count == 0 ? 0 : JoinEightDigits(word << (64 - 8 * count));
  return count;
}

// Reads [begin, end), digits only, with a check for overflow.
NumberError ReadManyDigits(const char* begin, const char* end, uint64_t* value);

// As ReadFloat(), for all that it reads.
NumberError ReadAnyFloat(const char** position, const char* end, float* value);

constexpr uint64_t kPowersOfTen[] = {1,      10,      100,      1000,     10000,
                                     100000, 1000000, 10000000, 100000000};
constexpr double kExactPowers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8};

}  // namespace text_number_internal

// Reads an optional sign and decimal digits from [*position, end) as C's
// strtoull does: a leading '-' wraps modulo 2^64. Moves *position past what was
// read; on kNotANumber it stays.
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
  // Only then can the sum have wrapped; leading zeros do not count.
  if (p - digits > 19) {
    const NumberError error =
        text_number_internal::ReadManyDigits(digits, p, &result);
    if (error != NumberError::kNone) return error;
  }
  *value = negative ? 0 - result : result;
  return NumberError::kNone;
}

// Reads a decimal or hexadecimal ("0x1.8p3") float, "inf" or "nan", with an
// optional sign, as C's strtof does in the "C" locale. A value too small for a
// float is rounded to a denormal or zero; one too large is kOutOfRange.
inline NumberError ReadFloat(const char** position, const char* end,
                             float* value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  // "123", "-1.25" or ".5" with at most eight digits on either side.
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
    // Two numbers that a double holds, so their quotient is the nearest double
    // (Clinger, How to Read Floating Point Numbers Accurately).
    const double wide = static_cast<double>(static_cast<int64_t>(digits)) /
                        text_number_internal::kExactPowers[behind];
    // Its nearest float is the text's: what is not the middle of two floats is
    // further from it than a double's rounding goes, 2^-53 of it at most. Of a
    // middle m / 2^j, m < 2^25, it is 1 / (10^8 * m) or more away; of one that
    // is a whole number, 1 / digits.
    // Other bytes may go on with the number: a ninth digit, an exponent.
    if (before + behind > 0 && digits <= (uint64_t{1} << 53) &&
        static_cast<unsigned char>(*p) <= ' ') {
      const float result = static_cast<float>(wide);
      *position = p;
      // Without a branch: signs have no pattern.
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
