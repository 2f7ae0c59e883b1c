#include "tf_ops/kernels/records/byte_stream.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "tensorflow/core/lib/io/inputstream_interface.h"
#include "tensorflow/core/lib/io/zlib_compression_options.h"
#include "tensorflow/core/lib/io/zlib_inputstream.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/file_statistics.h"
#include "tensorflow/core/platform/tstring.h"
#include "tf_ops/kernels/base/status_util.h"

namespace lodestar {
namespace {

namespace errors = tensorflow::errors;
namespace io = tensorflow::io;

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

// Two gzip members that the decompressor gets after the end of a file. Its
// output ends in their contents, with nothing in between, only if the file ends
// at the end of a member. Otherwise they are decoded as part of a truncated
// member.
constexpr char kEndMark[] =
    "\x1f\x8b\x08\0\0\0\0\0\0\xff\x01\x10\0\xef\xff"
    "\xa6\x3d\x91\x0e\xc8\x52\xf7\x6b\x19\xe4\x8f\x70\x2d\xbb\x43\xd5"
    "\x76\xa9\x24\x28\x10\0\0\0"
    "\x1f\x8b\x08\0\0\0\0\0\0\xff\x01\x10\0\xef\xff"
    "\x5c\xf3\x28\x97\xea\x04\xb9\x61\xd0\x3f\x8a\x75\x1b\xc6\x92\x4e"
    "\x36\x1b\xc3\x70\x10\0\0\0";
constexpr int64_t kMarkedBytes = 16;  // of the content of each member
constexpr int64_t kMemberBytes = (sizeof(kEndMark) - 1) / 2;
constexpr int64_t kMarkedBegin = 15;  // offset of the content in its member

// The input of the decompressor: the file, then kEndMark.
class CompressedBytes : public io::InputStreamInterface {
 public:
  explicit CompressedBytes(std::unique_ptr<ByteStream> stream)
      : stream_(std::move(stream)) {}

  absl::Status ReadNBytes(int64_t size, tensorflow::tstring* bytes) override {
    bytes->resize_uninitialized(size);
    int64_t read = 0;
    if (!at_end_) {
      const absl::Status status = stream_->Read(size, bytes->mdata(), &read);
      bytes->resize(status.ok() ? read : 0);
      LODESTAR_TRY(status);
      size_ += read;
      at_end_ = read < size;
    }
    if (read == 0) {
      read = std::min(size, kMarkBytes - mark_read_);
      bytes->assign(kEndMark + mark_read_, read);
      mark_read_ += read;
    }
    if (read == size) return absl::OkStatus();
    return errors::OutOfRange("the end of the file, or of what follows it");
  }
  // The number of bytes read from the file.
  int64_t Tell() const override { return size_; }
  absl::Status Reset() override {
    return errors::Unimplemented("a stream cannot be read again");
  }

  bool has_mark() const { return mark_read_ > 0; }
  int64_t file_bytes() const { return stream_->file_bytes(); }

 private:
  static constexpr int64_t kMarkBytes = sizeof(kEndMark) - 1;

  const std::unique_ptr<ByteStream> stream_;
  int64_t size_ = 0;
  bool at_end_ = false;
  int64_t mark_read_ = 0;
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
    while (*read < size && !(at_end_ && held_.empty())) {
      if (!at_end_) {
        LODESTAR_TRY(Decompress(std::min(size - *read, kGzipBufferBytes)));
        // This may be kEndMark.
        if (!at_end_ && compressed_.has_mark()) continue;
      }
      const int64_t count =
          std::min<int64_t>(size - *read, static_cast<int64_t>(held_.size()));
      std::memcpy(to + *read, held_.data(), count);
      held_.erase(0, count);
      *read += count;
    }
    return absl::OkStatus();
  }

  int64_t file_bytes() const override { return compressed_.file_bytes(); }

 private:
  // Appends the next bytes to held_, and at the end checks that the file is
  // complete.
  absl::Status Decompress(int64_t size) {
    const absl::Status status = stream_.ReadNBytes(size, &bytes_);
    at_end_ = errors::IsOutOfRange(status);
    if (!status.ok() && !at_end_ && !compressed_.has_mark()) {
      return WithPath(status, path_);
    }
    held_.append(bytes_.data(), bytes_.size());
    if (status.ok()) return status;
    const char* const first = kEndMark + kMarkedBegin;
    const std::string mark = std::string(first, kMarkedBytes) +
                             std::string(first + kMemberBytes, kMarkedBytes);
    if (!at_end_ || !absl::EndsWith(held_, mark)) {
      return errors::InvalidArgument(
          path_, ": the compressed file was truncated after ",
          compressed_.Tell(), " bytes, or is damaged at its end");
    }
    held_.resize(held_.size() - mark.size());
    return absl::OkStatus();
  }

  const std::string path_;
  CompressedBytes compressed_;
  io::ZlibInputStream stream_;
  bool at_end_ = false;
  std::string held_;  // decompressed bytes that Read() has not copied
  tensorflow::tstring bytes_;
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
