// SnapshotFileWriter.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_file_format.h"

namespace lodestar {

const char* NameOf(BlockKind kind) { return TraitsOf(kind).name; }

void SnapshotTotals::Add(BlockKind kind, int64_t count) {
  int64_t SnapshotTotals::* const total = TraitsOf(kind).total;
  if (total != nullptr) this->*total += count;
}

bool SnapshotTotals::operator==(const SnapshotTotals& other) const {
  return std::memcmp(this, &other, sizeof(*this)) == 0;
}

Status FileError(const std::string& path, const char* operation, int error) {
  const auto code = [error] {
    switch (error) {
      case ENOENT:
      case ENOTDIR:
        return StatusCode::kNotFound;
      case EEXIST:
        return StatusCode::kAlreadyExists;
      case EACCES:
      case EPERM:
      case EROFS:
        return StatusCode::kPermissionDenied;
      case ENOSPC:
      case EDQUOT:
      case EFBIG:
      case EMFILE:
      case ENFILE:
      case ENOMEM:
        return StatusCode::kResourceExhausted;
      case EISDIR:
      case ENAMETOOLONG:
      case EINVAL:
      case ELOOP:
        return StatusCode::kInvalidArgument;
      default:
        return StatusCode::kInternal;
    }
  }();
  return Status(code, StrCat("cannot ", operation, " '", path,
                             "': ", std::generic_category().message(error)));
}

Status SnapshotFileWriter::Create(
    const std::string& path, const std::string& label,
    std::unique_ptr<SnapshotFileWriter>* out) try {
  if (label.empty()) return InvalidArgument("'", path, "' must have a label");
  std::unique_ptr<SnapshotFileWriter> writer(new SnapshotFileWriter(path));
  writer->buffer_ = static_cast<char*>(writer->memory_.Allocate(kBufferBytes));
  if (writer->buffer_ == nullptr) {
    return ResourceExhausted("out of memory for writing '", path, "'.");
  }
  writer->file_ =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (writer->file_ < 0) return FileError(path, "create", errno);
  const SnapshotFileHeader header = SnapshotFileHeader::Create();
  writer->crc_ = Crc32c(&header, sizeof(header));
  LODESTAR_RETURN_IF_ERROR(writer->Write(&header, sizeof(header)));
  const int64_t bytes = static_cast<int64_t>(label.size());
  LODESTAR_RETURN_IF_ERROR(
      writer->AppendBlock(BlockKind::kLabel, bytes, label.data(), bytes));
  *out = std::move(writer);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for writing a snapshot file.");
}

SnapshotFileWriter::~SnapshotFileWriter() { Close(); }

Status SnapshotFileWriter::Append(BlockKind kind, int64_t count,
                                  const void* payload, int64_t bytes) {
  if (kind == BlockKind::kEnd || kind == BlockKind::kLabel) {
    return InvalidArgument("'", path_, "': ", NameOf(kind), " is written by ",
                           kind == BlockKind::kEnd ? "Finish()" : "Create()");
  }
  return AppendBlock(kind, count, payload, bytes);
}

Status SnapshotFileWriter::Finish() {
  const SnapshotTotals totals = totals_;
  LODESTAR_RETURN_IF_ERROR(
      AppendBlock(BlockKind::kEnd, kSnapshotTotals, &totals, sizeof(totals)));
  LODESTAR_RETURN_IF_ERROR(Flush());
  if (fsync(file_) != 0) return Fail("sync", errno);
  const int error = Close();
  if (error != 0) return Fail("close", error);
  status_ = FailedPrecondition("'", path_, "' is already finished.");
  return Status();
}

Status SnapshotFileWriter::AppendBlock(BlockKind kind, int64_t count,
                                       const void* payload, int64_t bytes) {
  LODESTAR_RETURN_IF_ERROR(status_);
  if (bytes < 0 || bytes > SnapshotFileReader::kMaxPayload) {
    return InvalidArgument("'", path_, "': the payload has ", bytes,
                           " bytes, expected 0 to ",
                           SnapshotFileReader::kMaxPayload);
  }
  const int64_t record_bytes = RecordBytesOf(kind);
  const bool fits = count <= 0          ? count == 0 && bytes == 0
                    : record_bytes != 0 ? count == bytes / record_bytes &&
                                              bytes % record_bytes == 0
                                        : bytes > 0 && bytes % count == 0;
  if (!fits) {
    return InvalidArgument("'", path_, "': a ", NameOf(kind), " block of ",
                           count, " records in ", bytes, " bytes");
  }
  if (count == 0) return Status();
  const SnapshotBlockHeader header =
      SnapshotBlockHeader::Create(kind, count, bytes, Crc32c(payload, bytes));
  const char padding[kSnapshotPadding] = {};
  crc_ = CrcWithBlock(crc_, header);
  LODESTAR_RETURN_IF_ERROR(Write(&header, sizeof(header)));
  LODESTAR_RETURN_IF_ERROR(Write(payload, bytes));
  LODESTAR_RETURN_IF_ERROR(Write(padding, PaddingOf(bytes)));
  totals_.Add(kind, count);
  return Status();
}

Status SnapshotFileWriter::Write(const void* data, int64_t bytes) {
  const char* next = static_cast<const char*>(data);
  bytes_ += bytes;
  while (bytes > 0) {
    const int64_t count = std::min(bytes, kBufferBytes - buffered_);
    std::memcpy(buffer_ + buffered_, next, count);
    buffered_ += count;
    next += count;
    bytes -= count;
    if (buffered_ == kBufferBytes) LODESTAR_RETURN_IF_ERROR(Flush());
  }
  return Status();
}

Status SnapshotFileWriter::Flush() {
  int64_t done = 0;
  while (done < buffered_) {
    const ssize_t count = write(file_, buffer_ + done, buffered_ - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Fail("write", errno);
    done += count;
  }
  written_ += done;
  buffered_ = 0;
#ifdef SYNC_FILE_RANGE_WRITE
  // Starts writeback while the next buffers are filled. On file systems without
  // this call the data is written by the final sync.
  if (written_ - started_ >= kStartBytes) {
    (void)sync_file_range(file_, started_, written_ - started_,
                          SYNC_FILE_RANGE_WRITE);
    started_ = written_;
  }
#endif
  return Status();
}

Status SnapshotFileWriter::Fail(const char* operation, int error) {
  status_ = FileError(path_, operation, error);
  Close();
  return status_;
}

int SnapshotFileWriter::Close() {
  if (file_ < 0) return 0;
  const int result = close(file_);
  const int error = errno;
  file_ = -1;
  return result == 0 ? 0 : error;
}

}  // namespace lodestar
