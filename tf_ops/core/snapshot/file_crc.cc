#include "tf_ops/core/snapshot/file_crc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <vector>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/snapshot/snapshot_file.h"

namespace lodestar {
namespace {

constexpr int64_t kPart = int64_t{1} << 20;

Status CrcOf(const std::string& path, int file, int64_t* bytes, uint32_t* crc) {
  struct stat info;
  if (fstat(file, &info) != 0) return FileError(path, "inspect", errno);
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument("'", path, "' is not a regular file");
  }
  std::vector<char> part(kPart);
  *bytes = 0;
  *crc = 0;
  while (true) {
    const ssize_t count = read(file, part.data(), kPart);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(path, "read", errno);
    if (count == 0) return Status();
    *crc = Crc32c(part.data(), count, *crc);
    *bytes += count;
  }
}

}  // namespace

Status FileCrc(const std::string& path, int64_t* bytes, uint32_t* crc) {
  // Non-blocking, so that a pipe without a writer does not hang.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return FileError(path, "open", errno);
  Status status;
  try {
    status = CrcOf(path, file, bytes, crc);
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("out of memory for reading '", path, "'");
  }
  close(file);
  return status;
}

}  // namespace lodestar
