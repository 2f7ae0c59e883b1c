#include "tf_ops/core/disk/file_error.h"

#include <cerrno>
#include <system_error>

namespace lodestar {

Status FileError(const std::string& path, const char* operation, int error) {
  const auto code = [error] {
    switch (error) {
      case ENOENT:
      case ENOTDIR:
        return StatusCode::kNotFound;
      case EEXIST:
        return StatusCode::kAlreadyExists;
      case EACCES:
      case EPERM:
      case EROFS:
        return StatusCode::kPermissionDenied;
      case ENOSPC:
      case EDQUOT:
      case EFBIG:
      case EMFILE:
      case ENFILE:
      case ENOMEM:
        return StatusCode::kResourceExhausted;
      case EISDIR:
      case ENAMETOOLONG:
      case EINVAL:
      case ELOOP:
        return StatusCode::kInvalidArgument;
      default:
        return StatusCode::kInternal;
    }
  }();
  return Status(code, StrCat("cannot ", operation, " '", path,
                             "': ", std::generic_category().message(error)));
}

}  // namespace lodestar
