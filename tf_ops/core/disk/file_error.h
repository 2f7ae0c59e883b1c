// Errors of system calls on files.

#ifndef LODESTAR_TF_OPS_CORE_DISK_FILE_ERROR_H_
#define LODESTAR_TF_OPS_CORE_DISK_FILE_ERROR_H_

#include <string>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// Returns the error of a failed system call on `path`; error: errno. Never
// DataLoss: a file that cannot be read may be intact.
Status FileError(const std::string& path, const char* operation, int error);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DISK_FILE_ERROR_H_
