// DiskFile: memory of a process on a disk. The file has no name: nobody else
// can open, change or remove it, and the system frees it when the process ends,
// however it ends. It is not a place to restore from.

#ifndef LODESTAR_TF_OPS_CORE_DISK_DISK_FILE_H_
#define LODESTAR_TF_OPS_CORE_DISK_DISK_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

// Const methods are thread-safe.
class DiskFile {
 public:
  // Bytes [offset, offset + bytes) of a file, and the memory that gets them.
  struct Range {
    int64_t offset;
    int64_t bytes;
    void* out;
  };

  // Creates a file in an existing folder.
  static Status Create(const std::string& folder,
                       std::unique_ptr<DiskFile>* out);

  virtual ~DiskFile() = default;
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  // Reserves space on the disk for `bytes` in total, so that Write finds no
  // full disk.
  virtual Status Extend(int64_t bytes) = 0;
  // Requires: the bytes are within the last Extend.
  virtual Status Write(const void* data, int64_t bytes, int64_t offset) = 0;
  // Requests all ranges before it waits for the first one. Returns DataLoss
  // for bytes beyond the end of the file.
  virtual Status Read(Span<const Range> ranges) const = 0;

 protected:
  DiskFile() = default;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DISK_DISK_FILE_H_
