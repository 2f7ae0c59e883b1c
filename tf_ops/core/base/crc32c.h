// CRC32C, the checksum of snapshot files: the 32-bit CRC with the Castagnoli
// polynomial (RFC 3720, appendix B.4).

#ifndef LODESTAR_TF_OPS_CORE_BASE_CRC32C_H_
#define LODESTAR_TF_OPS_CORE_BASE_CRC32C_H_

#include <cstdint>
#include <string>

namespace lodestar {

// Extends `crc`, the checksum of the preceding bytes, by `bytes` bytes at
// `data`. The checksum of no bytes is 0. Uses CRC instructions where available.
uint32_t Crc32c(const void* data, int64_t bytes, uint32_t crc = 0);

// Same result, without optional instructions.
uint32_t PortableCrc32c(const void* data, int64_t bytes, uint32_t crc = 0);

// Returns the checksum of two concatenated byte strings, given their checksums
// and the length of the second.
uint32_t JoinCrc32c(uint32_t first, uint32_t second, int64_t second_bytes);

// Returns the 8 hexadecimal digits of a checksum.
std::string HexOf(uint32_t crc);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_CRC32C_H_
