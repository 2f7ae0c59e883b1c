#include "tf_ops/kernels/records/byte_stream.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensorflow/core/lib/io/inputstream_interface.h"
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

// Refuses what is no file: to open a pipe waits for another process, and none
// can be read from an offset.
absl::Status CheckKind(const std::string& path) {
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

// What a file's decompressor reads: counts the bytes and keeps the last ones.
class CompressedBytes : public io::InputStreamInterface {
 public:
  explicit CompressedBytes(std::unique_ptr<ByteStream> stream)
      : stream_(std::move(stream)) {}

  absl::Status ReadNBytes(int64_t size, tensorflow::tstring* bytes) override {
    bytes->resize_uninitialized(size);
    int64_t read = 0;
    const absl::Status status = stream_->Read(size, bytes->mdata(), &read);
    bytes->resize(status.ok() ? read : 0);
    LODESTAR_TRY(status);
    size_ += read;
    end_.append(bytes->data() + std::max(read - kLengthBytes, int64_t{0}),
                std::min(read, kLengthBytes));
    end_.erase(0, end_.size() - std::min<size_t>(end_.size(), kLengthBytes));
    if (read == size) return absl::OkStatus();
    return errors::OutOfRange("the end of the file");
  }
  int64_t Tell() const override { return size_; }
  absl::Status Reset() override {
    return errors::Unimplemented("a stream cannot be read again");
  }

  // What gzip says, in the last bytes, that its last member holds, modulo 2^32;
  // more than anything can hold if there are too few.
  uint64_t Length() const {
    uint64_t length = 0;
    for (size_t i = 0; i < end_.size(); ++i) {
      length |= uint64_t{static_cast<unsigned char>(end_[i])} << (8 * i);
    }
    return end_.size() < kLengthBytes ? ~uint64_t{0} : length;
  }

 private:
  static constexpr int64_t kLengthBytes = 4;

  const std::unique_ptr<ByteStream> stream_;
  int64_t size_ = 0;
  std::string end_;
};

class GzipStream : public ByteStream {
 public:
  GzipStream(std::string path, std::unique_ptr<ByteStream> stream)
      : path_(std::move(path)),
        compressed_(std::move(stream)),
        stream_(&compressed_, kGzipBufferBytes, kGzipBufferBytes,
                io::ZlibCompressionOptions::GZIP(),
                /*owns_input_stream=*/false) {}

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
      if (!status.ok()) return CheckLength();
    }
    return absl::OkStatus();
  }

 private:
  // The decompressor takes the end of the file for the end of the data.
  absl::Status CheckLength() const {
    if (compressed_.Tell() == 0 || compressed_.Length() <= bytes_read_) {
      return absl::OkStatus();
    }
    return errors::InvalidArgument(path_,
                                   ": the compressed file was cut short after ",
                                   compressed_.Tell(), " bytes");
  }

  const std::string path_;
  CompressedBytes compressed_;
  io::ZlibInputStream stream_;
  uint64_t bytes_read_ = 0;  // decompressed
  tensorflow::tstring bytes_;
};

}  // namespace

absl::Status ByteStream::CheckName(std::string path) {
  if (path.find('\0') == std::string::npos) return absl::OkStatus();
  for (size_t at; (at = path.find('\0')) != std::string::npos;) {
    path.replace(at, 1, "\\0");
  }
  return errors::InvalidArgument(path, ": a path cannot hold a NUL");
}

std::unique_ptr<ByteStream> ByteStream::Decompress(
    const std::string& path, std::unique_ptr<ByteStream> stream) {
  if (!EndsWith(path, ".gz")) return stream;
  return std::make_unique<GzipStream>(path, std::move(stream));
}

absl::Status ByteStream::Open(tensorflow::Env* env, const std::string& path,
                              std::unique_ptr<ByteStream>* stream) {
  LODESTAR_TRY(CheckName(path));
  LODESTAR_TRY(CheckKind(path));
  std::unique_ptr<tensorflow::RandomAccessFile> file;
  const absl::Status status = env->NewRandomAccessFile(path, &file);
  if (!status.ok()) return WithPath(status, path);
  *stream =
      Decompress(path, std::make_unique<PlainStream>(path, std::move(file)));
  return absl::OkStatus();
}

}  // namespace lodestar
