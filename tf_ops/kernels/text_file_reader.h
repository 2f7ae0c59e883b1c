// TextFileReader: a file of any scheme that TensorFlow's file systems know, as
// pieces of whole lines. A name that ends in ".gz" is decompressed.

#ifndef LODESTAR_TF_OPS_KERNELS_TEXT_FILE_READER_H_
#define LODESTAR_TF_OPS_KERNELS_TEXT_FILE_READER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tensorflow/core/lib/io/inputstream_interface.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/status.h"
#include "tensorflow/core/platform/tstring.h"

namespace lodestar {

class TextFileReader {
 public:
  // Errors name the path: NotFound if there is no such file.
  static absl::Status Open(tensorflow::Env* env, const std::string& path,
                           std::unique_ptr<TextFileReader>* reader);

  // Replaces `text` by the next piece and *first_line by the number, from 0, of
  // its first line. Every line is whole and ends in a newline, but the file's
  // last one may lack it. An empty piece means the end of the file.
  // InvalidArgument if a line is longer than 64 MiB, the file has no bytes, or
  // it was compressed and is cut short.
  absl::Status Read(std::string* text, int64_t* first_line);

  // Starts at line `line`, from 0. FailedPrecondition if the file has
  // fewer.
  // REQUIRES: nothing was read yet.
  absl::Status SkipTo(int64_t line);

 private:
  TextFileReader(std::string path, int64_t compressed_bytes,
                 std::unique_ptr<tensorflow::RandomAccessFile> file,
                 std::unique_ptr<tensorflow::io::InputStreamInterface> stream)
      : path_(std::move(path)),
        compressed_bytes_(compressed_bytes),
        file_(std::move(file)),
        stream_(std::move(stream)) {}

  // Whether the end of a compressed file is what gzip writes there.
  absl::Status CheckTrailer() const;

  const std::string path_;
  const int64_t compressed_bytes_;  // the file's size; -1: not compressed
  const std::unique_ptr<tensorflow::RandomAccessFile> file_;
  const std::unique_ptr<tensorflow::io::InputStreamInterface> stream_;
  std::string rest_;  // what was read beyond the last piece
  int64_t next_line_ = 0;
  uint64_t bytes_read_ = 0;  // decompressed
  bool at_end_ = false;
  tensorflow::tstring buffer_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_TEXT_FILE_READER_H_
