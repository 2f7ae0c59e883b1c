// Numbers in text, without locale, allocation or exceptions.

#ifndef LODESTAR_TF_OPS_CORE_TEXT_NUMBER_H_
#define LODESTAR_TF_OPS_CORE_TEXT_NUMBER_H_

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

// Reads [begin, end), digits only, with a check for overflow.
NumberError ReadManyDigits(const char* begin, const char* end, uint64_t* value);

constexpr uint64_t kPowersOfTen[] = {1,      10,      100,      1000,     10000,
                                     100000, 1000000, 10000000, 100000000};

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
  // Up to eight digits at a time, without a branch for each.
  while (end - p >= 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    word ^= 0x3030303030303030ULL;  // digits become 0 to 9, no other byte does
    // The high bit of each byte above 9. A carry can only come from such a
    // byte, so the lowest one is right.
    const uint64_t others =
        ((word + 0x7676767676767676ULL) | word) & 0x8080808080808080ULL;
    const int count = others == 0 ? 8 : __builtin_ctzll(others) >> 3;
    if (count == 0) break;
    result = result * text_number_internal::kPowersOfTen[count] +
             text_number_internal::JoinEightDigits(word << (64 - 8 * count));
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
NumberError ReadFloat(const char** position, const char* end, float* value);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_TEXT_NUMBER_H_
