#include "tf_ops/core/snapshot/file_crc.h"

#include <unistd.h>

#include <cerrno>
#include <new>
#include <vector>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/snapshot/snapshot_file.h"

namespace lodestar {
namespace {

Status CrcOf(const std::string& path, int file, int64_t* bytes, uint32_t* crc) {
  std::vector<char> part(SnapshotFileWriter::kBlockBytes);
  *bytes = 0;
  *crc = 0;
  while (true) {
    const ssize_t count = read(file, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(path, "read", errno);
    if (count == 0) return Status();
    *crc = Crc32c(part.data(), count, *crc);
    *bytes += count;
  }
}

}  // namespace

Status FileCrc(const std::string& path, int64_t* bytes, uint32_t* crc) {
  int file = -1;
  int64_t size = 0;
  Status status = OpenRegularFile(path, &file, &size);
  try {
    if (status.ok()) status = CrcOf(path, file, bytes, crc);
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("out of memory for reading '", path, "'");
  }
  if (file >= 0) close(file);
  return status;
}

}  // namespace lodestar
