#include "tf_ops/kernels/records/byte_stream.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
// TensorFlow's own copy, which its library exports.
#include "external/zlib/zlib.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/file_statistics.h"
#include "tf_ops/kernels/base/status_util.h"

namespace lodestar {
namespace {

namespace errors = tensorflow::errors;

constexpr int64_t kGzipBufferBytes = 512 << 10;

absl::Status WithPath(const absl::Status& status, const std::string& path) {
  return absl::StrContains(status.message(), path)
             ? status
             : Prefixed(status, path, ": ");
}

// Rejects special files. Opening a pipe would wait for another process, and
// pipes cannot be read from an offset.
absl::Status CheckKind(const std::string& path) {
  const std::string local(absl::StripPrefix(path, "file://"));
  struct stat status;
  if (absl::StrContains(local, "://") || stat(local.c_str(), &status) != 0 ||
      S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) {
    return absl::OkStatus();
  }
  const char* const kind = S_ISFIFO(status.st_mode)   ? "a pipe"
                           : S_ISSOCK(status.st_mode) ? "a socket"
                                                      : "a device";
  return errors::InvalidArgument(path, ": is ", kind, ", expected a file");
}

class PlainStream : public ByteStream {
 public:
  PlainStream(tensorflow::Env* env, std::string path,
              std::unique_ptr<tensorflow::RandomAccessFile> file)
      : env_(env), path_(std::move(path)), file_(std::move(file)) {
    is_known_ = env_->Stat(path_, &opened_).ok();
  }

  absl::Status Read(int64_t size, char* to, int64_t* read) override {
    absl::string_view bytes;
    const absl::Status status = file_->Read(offset_, size, &bytes, to);
    if (!status.ok() && !errors::IsOutOfRange(status)) {
      return WithPath(status, path_);
    }
    // A file system may return its own buffer.
    if (bytes.data() != to) std::memmove(to, bytes.data(), bytes.size());
    *read = static_cast<int64_t>(bytes.size());
    offset_ += *read;
    return *read < size ? CheckUnchanged() : absl::OkStatus();
  }

  absl::Status Skip(int64_t bytes) override {
    offset_ += bytes;
    return absl::OkStatus();
  }

  int64_t file_bytes() const override {
    return is_known_ ? opened_.length : -1;
  }

 private:
  // A file that was truncated or appended to during reading may end anywhere,
  // even where it is well formed.
  absl::Status CheckUnchanged() const {
    tensorflow::FileStatistics now;
    if (!is_known_) return absl::OkStatus();
    // A removed file is still read to its end.
    if (!env_->Stat(path_, &now).ok()) now = opened_;
    // Some file systems, such as /proc, generate files when they are read.
    if (opened_.length == 0 && now.length == 0) return absl::OkStatus();
    if (now.length != opened_.length || offset_ != opened_.length) {
      return errors::FailedPrecondition(
          path_, ": changed while it was read: it had ", opened_.length,
          " bytes when it was opened, ", now.length, " bytes at the end, and ",
          offset_, " bytes were read");
    }
    if (now.mtime_nsec != opened_.mtime_nsec) {
      return errors::FailedPrecondition(
          path_, ": changed while it was read: it was written to, and has ",
          now.length, " bytes as before");
    }
    return absl::OkStatus();
  }

  tensorflow::Env* const env_;
  const std::string path_;
  const std::unique_ptr<tensorflow::RandomAccessFile> file_;
  tensorflow::FileStatistics opened_;  // if is_known_
  bool is_known_ = false;
  int64_t offset_ = 0;
};

// Decompresses the members of a gzip file, one after the other.
class GzipStream : public ByteStream {
 public:
  GzipStream(std::string path, std::unique_ptr<ByteStream> stream)
      : path_(std::move(path)),
        stream_(std::move(stream)),
        input_(new char[kGzipBufferBytes]) {
    constexpr int kGzip = 16;  // added to the window bits
    if (inflateInit2(&zlib_, kGzip + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~GzipStream() override { inflateEnd(&zlib_); }

  absl::Status Read(int64_t size, char* to, int64_t* read) override {
    for (*read = 0; *read < size;) {
      if (zlib_.avail_in == 0 && !at_end_) LODESTAR_TRY(ReadInput());
      if (zlib_.avail_in == 0 && !in_member_) break;
      in_member_ = true;
      const int64_t most = std::min(size - *read, kMostOutput);
      zlib_.next_out = reinterpret_cast<Bytef*>(to + *read);
      zlib_.avail_out = static_cast<uInt>(most);
      const int result = inflate(&zlib_, Z_NO_FLUSH);
      *read += most - zlib_.avail_out;
      if (result == Z_STREAM_END) {
        inflateReset(&zlib_);
        in_member_ = false;
      } else if (result != Z_OK && (result != Z_BUF_ERROR || at_end_)) {
        return Damaged(result);
      }
    }
    return absl::OkStatus();
  }

  int64_t file_bytes() const override { return stream_->file_bytes(); }

 private:
  static constexpr int64_t kMostOutput = 1 << 30;  // zlib's sizes have 32 bits

  absl::Status ReadInput() {
    int64_t read = 0;
    LODESTAR_TRY(stream_->Read(kGzipBufferBytes, input_.get(), &read));
    zlib_.next_in = reinterpret_cast<Bytef*>(input_.get());
    zlib_.avail_in = static_cast<uInt>(read);
    input_bytes_ += read;
    at_end_ = read < kGzipBufferBytes;
    return absl::OkStatus();
  }

  absl::Status Damaged(int result) const {
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (at_end_) {
      return errors::InvalidArgument(
          path_, ": the compressed file was truncated after ", input_bytes_,
          " bytes, or is damaged at its end");
    }
    return errors::DataLoss(path_, ": cannot be decompressed: ",
                            zlib_.msg == nullptr ? zError(result) : zlib_.msg);
  }

  const std::string path_;
  const std::unique_ptr<ByteStream> stream_;
  const std::unique_ptr<char[]> input_;
  z_stream zlib_ = {};
  int64_t input_bytes_ = 0;
  bool at_end_ = false;     // all of the file is in input_
  bool in_member_ = false;  // a member has begun and not ended
};

}  // namespace

absl::Status ByteStream::Skip(int64_t bytes) {
  constexpr int64_t kMost = 1 << 20;
  const std::unique_ptr<char[]> buffer(new char[kMost]);
  for (int64_t read = kMost; bytes > 0 && read == kMost; bytes -= read) {
    LODESTAR_TRY(Read(std::min(bytes, kMost), buffer.get(), &read));
  }
  return absl::OkStatus();
}

absl::Status ByteStream::CheckResumed(const std::string& path,
                                      int64_t saved) const {
  if (saved < 0 || file_bytes() < 0 || saved == file_bytes()) {
    return absl::OkStatus();
  }
  return errors::FailedPrecondition(
      path, ": has ", file_bytes(), " bytes, but had ", saved,
      " when the iterator was saved, so reading cannot resume in it");
}

absl::Status ByteStream::CheckName(std::string path) {
  if (path.find('\0') == std::string::npos) return absl::OkStatus();
  for (size_t at; (at = path.find('\0')) != std::string::npos;) {
    path.replace(at, 1, "\\0");
  }
  return errors::InvalidArgument(path, ": a path cannot hold a NUL");
}

std::unique_ptr<ByteStream> ByteStream::Decompress(
    const std::string& path, std::unique_ptr<ByteStream> stream) {
  if (!absl::EndsWith(path, ".gz")) return stream;
  return std::make_unique<GzipStream>(path, std::move(stream));
}

absl::Status ByteStream::Open(tensorflow::Env* env, const std::string& path,
                              std::unique_ptr<ByteStream>* stream) {
  LODESTAR_TRY(CheckName(path));
  LODESTAR_TRY(CheckKind(path));
  std::unique_ptr<tensorflow::RandomAccessFile> file;
  const absl::Status status = env->NewRandomAccessFile(path, &file);
  if (!status.ok()) return WithPath(status, path);
  *stream = Decompress(
      path, std::make_unique<PlainStream>(env, path, std::move(file)));
  return absl::OkStatus();
}

}  // namespace lodestar
