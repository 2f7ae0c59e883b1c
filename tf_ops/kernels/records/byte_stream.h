// ByteStream: sequential access to the bytes of a file.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_BYTE_STREAM_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_BYTE_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/status.h"

namespace lodestar {

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Opens a file of any scheme of TensorFlow's file systems. A name that ends
  // in ".gz" is decompressed. Errors contain the path: NotFound if there is no
  // such file, InvalidArgument if it is a pipe, socket or device, or the path
  // contains a NUL.
  static absl::Status Open(tensorflow::Env* env, const std::string& path,
                           std::unique_ptr<ByteStream>* stream);

  // Returns InvalidArgument if `path` contains a NUL, where the system would
  // truncate it.
  static absl::Status CheckName(std::string path);

  // Returns the contents of `stream`, the bytes of the file at `path`,
  // decompressed if the name ends in ".gz".
  static std::unique_ptr<ByteStream> Decompress(
      const std::string& path, std::unique_ptr<ByteStream> stream);

  // Copies the next `size` bytes to `to`; *read is smaller only at the end.
  // Returns InvalidArgument if the file is compressed and truncated, and at the
  // end FailedPrecondition if it was modified since Open().
  virtual absl::Status Read(int64_t size, char* to, int64_t* read) = 0;

  // Skips the next bytes. There may be fewer at the end of the file.
  virtual absl::Status Skip(int64_t bytes);

  // The stored size of the file when it was opened; -1 if unknown.
  virtual int64_t file_bytes() const { return -1; }

  // Returns FailedPrecondition if the size of the file at `path` is known and
  // differs from `saved`, the file_bytes() when the iterator was saved.
  absl::Status CheckResumed(const std::string& path, int64_t saved) const;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_BYTE_STREAM_H_
