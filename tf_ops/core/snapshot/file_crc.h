// CRC32C of a file.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_FILE_CRC_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_FILE_CRC_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// Returns the size and the CRC32C of a regular file. Returns NotFound or
// PermissionDenied if it cannot be opened.
Status FileCrc(const std::string& path, int64_t* bytes, uint32_t* crc);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_FILE_CRC_H_
