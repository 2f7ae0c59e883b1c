// CRC32C, the checksum of snapshot files: the CRC of 32 bits with Castagnoli's
// polynomial (RFC 3720, appendix B.4).

#ifndef LODESTAR_TF_OPS_CORE_BASE_CRC32C_H_
#define LODESTAR_TF_OPS_CORE_BASE_CRC32C_H_

#include <cstdint>

namespace lodestar {

// Of what `crc` is the checksum of, followed by `bytes` bytes at `data`; 0 is
// the checksum of nothing. By the processor's own instructions, if it has them.
uint32_t Crc32c(const void* data, int64_t bytes, uint32_t crc = 0);

// The same without instructions that not every processor has.
uint32_t PortableCrc32c(const void* data, int64_t bytes, uint32_t crc = 0);

// Of bytes with checksum `first`, followed by `second_bytes` bytes with
// checksum `second`.
uint32_t JoinCrc32c(uint32_t first, uint32_t second, int64_t second_bytes);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_CRC32C_H_
