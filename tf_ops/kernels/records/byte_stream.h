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
  // end. InvalidArgument if the file was compressed and is cut short.
  virtual absl::Status Read(int64_t size, char* to, int64_t* read) = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_BYTE_STREAM_H_
