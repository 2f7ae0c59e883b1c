// Numbers in text, without locale, allocation or exceptions.

#ifndef LODESTAR_TF_OPS_CORE_TEXT_NUMBER_H_
#define LODESTAR_TF_OPS_CORE_TEXT_NUMBER_H_

#include <cstdint>

namespace lodestar {

enum class NumberError { kNone, kNotANumber, kOutOfRange };

// Reads an optional sign and decimal digits from [*position, end) as C's
// strtoull does: a leading '-' wraps modulo 2^64. Moves *position past what was
// read; on kNotANumber it stays.
NumberError ReadUint64(const char** position, const char* end, uint64_t* value);

// Reads a decimal or hexadecimal ("0x1.8p3") float, "inf" or "nan", with an
// optional sign, as C's strtof does in the "C" locale. A value too small for a
// float is rounded to a denormal or zero; one too large is kOutOfRange.
NumberError ReadFloat(const char** position, const char* end, float* value);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_TEXT_NUMBER_H_
