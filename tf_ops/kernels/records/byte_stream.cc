#include "tf_ops/kernels/records/byte_stream.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensorflow/core/lib/io/random_inputstream.h"
#include "tensorflow/core/lib/io/zlib_compression_options.h"
#include "tensorflow/core/lib/io/zlib_inputstream.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/tstring.h"
#include "tf_ops/kernels/base/status_util.h"

namespace lodestar {
namespace {

namespace errors = tensorflow::errors;
namespace io = tensorflow::io;

constexpr int64_t kGzipBufferBytes = 512 << 10;

bool EndsWith(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

absl::Status WithPath(const absl::Status& status, const std::string& path) {
  const std::string message(status.message());
  if (message.find(path) != std::string::npos) return status;
  return absl::Status(status.code(), path + ": " + message);
}

// Refuses a path that the system would cut at a NUL, and what is no file: to
// open a pipe waits for another process, and none can be read from an offset.
absl::Status CheckPath(std::string path) {
  if (path.find('\0') != std::string::npos) {
    for (size_t at; (at = path.find('\0')) != std::string::npos;) {
      path.replace(at, 1, "\\0");
    }
    return errors::InvalidArgument(path, ": a path cannot hold a NUL");
  }
  const std::string scheme = "file://";
  const std::string local = path.compare(0, scheme.size(), scheme) == 0
                                ? path.substr(scheme.size())
                                : path;
  struct stat status;
  if (local.find("://") != std::string::npos ||
      stat(local.c_str(), &status) != 0 || S_ISREG(status.st_mode) ||
      S_ISDIR(status.st_mode)) {
    return absl::OkStatus();
  }
  const char* const kind = S_ISFIFO(status.st_mode)   ? "a pipe"
                           : S_ISSOCK(status.st_mode) ? "a socket"
                                                      : "a device";
  return errors::InvalidArgument(path, ": is ", kind, ", wanted a file");
}

class PlainStream : public ByteStream {
 public:
  PlainStream(std::string path,
              std::unique_ptr<tensorflow::RandomAccessFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  absl::Status Read(int64_t size, char* to, int64_t* read) override {
    absl::string_view bytes;
    const absl::Status status = file_->Read(offset_, size, &bytes, to);
    if (!status.ok() && !errors::IsOutOfRange(status)) {
      return WithPath(status, path_);
    }
    // A file system may hold the bytes itself.
    if (bytes.data() != to) std::memmove(to, bytes.data(), bytes.size());
    *read = static_cast<int64_t>(bytes.size());
    offset_ += bytes.size();
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const std::unique_ptr<tensorflow::RandomAccessFile> file_;
  uint64_t offset_ = 0;
};

class GzipStream : public ByteStream {
 public:
  GzipStream(std::string path, int64_t compressed_bytes,
             std::unique_ptr<tensorflow::RandomAccessFile> file)
      : path_(std::move(path)),
        compressed_bytes_(compressed_bytes),
        file_(std::move(file)),
        stream_(new io::RandomAccessInputStream(file_.get()), kGzipBufferBytes,
                kGzipBufferBytes, io::ZlibCompressionOptions::GZIP(),
                /*owns_input_stream=*/true) {}

  absl::Status Read(int64_t size, char* to, int64_t* read) override {
    *read = 0;
    while (*read < size) {
      const absl::Status status =
          stream_.ReadNBytes(std::min(size - *read, kGzipBufferBytes), &bytes_);
      if (!status.ok() && !errors::IsOutOfRange(status)) {
        return WithPath(status, path_);
      }
      std::memcpy(to + *read, bytes_.data(), bytes_.size());
      *read += bytes_.size();
      bytes_read_ += bytes_.size();
      if (!status.ok()) return CheckTrailer();
    }
    return absl::OkStatus();
  }

 private:
  // Whether the end of the file is what gzip writes there.
  absl::Status CheckTrailer() const {
    // The stream takes the end of the file for the end of the data. A gzip file
    // ends with the number of bytes that its last member holds, modulo 2^32.
    constexpr int64_t kLengthBytes = 4;
    if (compressed_bytes_ == 0) return absl::OkStatus();
    uint64_t length = 0;
    if (compressed_bytes_ >= kLengthBytes) {
      io::RandomAccessInputStream end(file_.get());
      tensorflow::tstring bytes;
      absl::Status status = end.Seek(compressed_bytes_ - kLengthBytes);
      if (status.ok()) status = end.ReadNBytes(kLengthBytes, &bytes);
      if (!status.ok()) return WithPath(status, path_);
      for (int64_t i = 0; i < kLengthBytes; ++i) {
        length |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
      }
    }
    if (compressed_bytes_ < kLengthBytes || length > bytes_read_) {
      return errors::InvalidArgument(
          path_, ": the compressed file was cut short after ",
          compressed_bytes_, " bytes");
    }
    return absl::OkStatus();
  }

  const std::string path_;
  const int64_t compressed_bytes_;  // the file's size
  const std::unique_ptr<tensorflow::RandomAccessFile> file_;
  io::ZlibInputStream stream_;
  uint64_t bytes_read_ = 0;  // decompressed
  tensorflow::tstring bytes_;
};

}  // namespace

absl::Status ByteStream::Open(tensorflow::Env* env, const std::string& path,
                              std::unique_ptr<ByteStream>* stream) {
  LODESTAR_TRY(CheckPath(path));
  std::unique_ptr<tensorflow::RandomAccessFile> file;
  absl::Status status = env->NewRandomAccessFile(path, &file);
  if (!status.ok()) return WithPath(status, path);
  if (!EndsWith(path, ".gz")) {
    *stream = std::make_unique<PlainStream>(path, std::move(file));
    return absl::OkStatus();
  }
  tensorflow::uint64 size = 0;
  status = env->GetFileSize(path, &size);
  if (!status.ok()) return WithPath(status, path);
  *stream = std::make_unique<GzipStream>(path, static_cast<int64_t>(size),
                                         std::move(file));
  return absl::OkStatus();
}

}  // namespace lodestar
