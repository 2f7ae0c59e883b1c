#include "tf_ops/core/disk/disk_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/disk/file_error.h"

namespace lodestar {
namespace {

// Calls a function that returns a number of bytes, or -1 and errno, until it is
// not interrupted by a signal.
template <typename Call>
int64_t Retry(const Call& call) {
  int64_t result = -1;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

// A file system without O_TMPFILE reports one of several errors.
int OpenWithoutName(const std::string& folder) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string path = folder + "/lodestar-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

class NamelessFile final : public DiskFile {
 public:
  // Closes `file` at the end. folder: for errors.
  NamelessFile(std::string folder, int file)
      : folder_(std::move(folder)), file_(file) {}
  ~NamelessFile() override { close(file_); }

  Status Extend(int64_t bytes) override {
    if (bytes <= bytes_) return Status();
    const int64_t result =
        Retry([&] { return fallocate(file_, 0, bytes_, bytes - bytes_); });
    if (result != 0) {
      if (errno != EOPNOTSUPP) return Error("reserve space in", errno);
      LODESTAR_RETURN_IF_ERROR(WriteZeros(bytes));
    }
    bytes_ = bytes;
    return Status();
  }

  Status Write(const void* data, int64_t bytes, int64_t offset) override {
    const char* const from = static_cast<const char*>(data);
    for (int64_t done = 0; done < bytes;) {
      const int64_t count = Retry([&] {
        return pwrite(file_, from + done, bytes - done, offset + done);
      });
      if (count <= 0) {
        return Error("write to a file in", count == 0 ? EIO : errno);
      }
      done += count;
    }
    return Status();
  }

  Status Read(Span<const Range> ranges) const override try {
    std::vector<Range> left;
    for (const Range& range : ranges) {
      const int64_t count = TryRead(range);
      if (count == range.bytes) continue;
      left.push_back({range.offset + count, range.bytes - count,
                      static_cast<char*>(range.out) + count});
    }
    for (const Range& range : left) {
      posix_fadvise(file_, range.offset, range.bytes, POSIX_FADV_WILLNEED);
    }
    for (const Range& range : left) {
      LODESTAR_RETURN_IF_ERROR(ReadAndWait(range));
    }
    return Status();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory for reading ", ranges.size(),
                             " rows of '", folder_, "'.");
  }

 private:
  Status Error(const char* operation, int error) const {
    return FileError(folder_, operation, error);
  }

  Status WriteZeros(int64_t end) {
    const std::vector<char> zeros(1 << 16);
    for (int64_t at = bytes_; at < end;) {
      const int64_t count = std::min<int64_t>(zeros.size(), end - at);
      LODESTAR_RETURN_IF_ERROR(Write(zeros.data(), count, at));
      at += count;
    }
    return Status();
  }

  // Reads the bytes that are in the page cache, and returns their number.
  int64_t TryRead(const Range& range) const {
    const iovec to = {range.out, static_cast<size_t>(range.bytes)};
    const int64_t count =
        Retry([&] { return preadv2(file_, &to, 1, range.offset, RWF_NOWAIT); });
    // Errors come again, and are reported, when the bytes are waited for.
    return std::max<int64_t>(count, 0);
  }

  Status ReadAndWait(const Range& range) const {
    for (int64_t done = 0; done < range.bytes;) {
      const int64_t count = Retry([&] {
        return pread(file_, static_cast<char*>(range.out) + done,
                     range.bytes - done, range.offset + done);
      });
      if (count < 0) return Error("read a file in", errno);
      if (count == 0) {
        return DataLoss("a file in '", folder_, "' ends before byte ",
                        range.offset + range.bytes, ".");
      }
      done += count;
    }
    return Status();
  }

  const std::string folder_;
  const int file_;
  int64_t bytes_ = 0;
};

}  // namespace

Status DiskFile::Create(const std::string& folder,
                        std::unique_ptr<DiskFile>* out) {
  const int file = OpenWithoutName(folder);
  if (file < 0) return FileError(folder, "create a file in", errno);
  // Rows are read one by one, in no order.
  posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
  try {
    *out = std::make_unique<NamelessFile>(folder, file);
  } catch (const std::bad_alloc&) {
    close(file);
    return ResourceExhausted("out of memory for a file in '", folder, "'.");
  }
  return Status();
}

}  // namespace lodestar
