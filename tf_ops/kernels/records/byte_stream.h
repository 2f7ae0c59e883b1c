// ByteStream: the bytes of a file, from first to last.

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

  // Opens a file of any scheme that TensorFlow's file systems know; a name that
  // ends in ".gz" is decompressed. Errors name the path: NotFound if there is
  // no such file, InvalidArgument if it is a pipe, socket or device, or the
  // path holds a NUL.
  static absl::Status Open(tensorflow::Env* env, const std::string& path,
                           std::unique_ptr<ByteStream>* stream);

  // InvalidArgument if `path` holds a NUL, where the system would cut it.
  static absl::Status CheckName(std::string path);

  // What `stream`, the bytes of the file at `path`, holds: decompressed if the
  // name ends in ".gz".
  static std::unique_ptr<ByteStream> Decompress(
      const std::string& path, std::unique_ptr<ByteStream> stream);

  // Copies the next bytes to `to`, `size` of them; *read is less only at the
  // end. InvalidArgument if the file was compressed and is cut short;
  // FailedPrecondition, at the end, if it was written to since Open().
  virtual absl::Status Read(int64_t size, char* to, int64_t* read) = 0;

  // Leaves out the next bytes. At the end of the file there may be fewer.
  virtual absl::Status Skip(int64_t bytes);

  // The size of the file as it is stored, when it was opened; -1 if unknown.
  virtual int64_t file_bytes() const { return -1; }

  // FailedPrecondition if reading the file at `path` is to resume, and its size
  // is known and is not `saved`, what file_bytes() was then.
  absl::Status CheckResumed(const std::string& path, int64_t saved) const;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_BYTE_STREAM_H_
