#include "tf_ops/core/snapshot/snapshot_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/crc32c.h"

namespace lodestar {
namespace {

// Files are little-endian, and are read and written without conversion.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

constexpr uint32_t kSnapshotFormatVersion = 2;
constexpr char kSnapshotFileMagic[8] = {'L', 'O', 'D', 'E', 'S', 'N', 'A', 'P'};
constexpr uint32_t kSnapshotBlockMagic = 0x4b42534c;  // "LSBK"

struct SnapshotFileHeader {
  static SnapshotFileHeader Create() {
    SnapshotFileHeader header = {};
    std::memcpy(header.magic, kSnapshotFileMagic, sizeof(header.magic));
    header.version = kSnapshotFormatVersion;
    header.crc = header.Crc();
    return header;
  }

  char magic[8];
  uint32_t version;
  uint32_t crc;  // of the preceding fields

  uint32_t Crc() const {
    return Crc32c(this, offsetof(SnapshotFileHeader, crc));
  }
};
static_assert(sizeof(SnapshotFileHeader) == SnapshotFileReader::kFirstBlock);

struct SnapshotBlockHeader {
  static SnapshotBlockHeader Create(BlockKind kind, int64_t count,
                                    int64_t bytes, uint32_t payload_crc) {
    SnapshotBlockHeader header = {};
    header.magic = kSnapshotBlockMagic;
    header.kind = static_cast<uint16_t>(kind);
    header.count = count;
    header.bytes = bytes;
    header.payload_crc = payload_crc;
    header.crc = header.Crc();
    return header;
  }

  uint32_t magic;
  uint16_t kind;
  uint16_t zero;
  uint64_t count;
  uint64_t bytes;
  uint32_t payload_crc;
  uint32_t crc;  // of the preceding fields

  uint32_t Crc() const {
    return Crc32c(this, offsetof(SnapshotBlockHeader, crc));
  }
};
static_assert(sizeof(SnapshotBlockHeader) == SnapshotFileReader::kBlockHeader);

// Payloads are padded with zeros to a multiple of this.
constexpr int64_t kSnapshotPadding = 8;
constexpr int64_t PaddingOf(int64_t bytes) {
  return -bytes & (kSnapshotPadding - 1);
}

// Extends the file checksum `crc` by a block.
uint32_t CrcWithBlock(uint32_t crc, const SnapshotBlockHeader& header) {
  constexpr char kPadding[kSnapshotPadding] = {};
  const int64_t bytes = static_cast<int64_t>(header.bytes);
  crc = Crc32c(&header, sizeof(header), crc);
  crc = JoinCrc32c(crc, header.payload_crc, bytes);
  return Crc32c(kPadding, PaddingOf(bytes), crc);
}

// Properties of each kind of block, from kTable on.
struct SnapshotBlockTraits {
  const char* name;
  // Size of a record, or 0 if it varies.
  int64_t record_bytes;
  // The total that counts its records, if any.
  int64_t SnapshotTotals::* total;
};
constexpr SnapshotBlockTraits kSnapshotBlockTraits[] = {
    {"TABLE", 0, nullptr},
    {"ROWS", 0, &SnapshotTotals::rows},
    {"REMOVED", 8, &SnapshotTotals::removed},
    {"PENDING", 24, &SnapshotTotals::pending},
    {"SKETCH", 1, &SnapshotTotals::sketch},
    {"SHARED_ROWS", 0, &SnapshotTotals::shared_rows},
    {"BLOB", 1, &SnapshotTotals::blobs},
    {"END", 8, nullptr},
    {"LABEL", 1, nullptr},
};
constexpr const SnapshotBlockTraits& TraitsOf(BlockKind kind) {
  return kSnapshotBlockTraits[static_cast<int>(kind) -
                              static_cast<int>(BlockKind::kTable)];
}
constexpr int64_t RecordBytesOf(BlockKind kind) {
  return TraitsOf(kind).record_bytes;
}

// Number of values in the payload of END.
constexpr int64_t kSnapshotTotals = 6;
static_assert(sizeof(SnapshotTotals) == kSnapshotTotals * sizeof(int64_t));

// Opens a regular file for reading. On error, the caller must still close *file
// unless it is -1.
Status OpenRegularFile(const std::string& path, int* file, int64_t* size) {
  // Non-blocking, so that a pipe without a writer does not hang.
  *file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*file < 0) return FileError(path, "open", errno);
  struct stat info;
  if (fstat(*file, &info) != 0) return FileError(path, "inspect", errno);
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument("'", path, "' is not a regular file");
  }
  *size = info.st_size;
  return Status();
}

Status CrcOf(const std::string& path, int file, int64_t* bytes, uint32_t* crc) {
  std::vector<char> part(SnapshotFileWriter::kBlockBytes);
  *bytes = 0;
  *crc = 0;
  while (true) {
    const ssize_t count = read(file, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(path, "read", errno);
    if (count == 0) return Status();
    *crc = Crc32c(part.data(), count, *crc);
    *bytes += count;
  }
}

}  // namespace

const char* NameOf(BlockKind kind) { return TraitsOf(kind).name; }

void SnapshotTotals::Add(BlockKind kind, int64_t count) {
  int64_t SnapshotTotals::* const total = TraitsOf(kind).total;
  if (total != nullptr) this->*total += count;
}

bool SnapshotTotals::operator==(const SnapshotTotals& other) const {
  return std::memcmp(this, &other, sizeof(*this)) == 0;
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

Status FileCrc(const std::string& path, int64_t* bytes, uint32_t* crc) {
  int file = -1;
  int64_t size = 0;
  Status status = OpenRegularFile(path, &file, &size);
  try {
    if (status.ok()) status = CrcOf(path, file, bytes, crc);
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("out of memory for reading '", path, "'");
  }
  if (file >= 0) close(file);
  return status;
}

SnapshotFileReader::~SnapshotFileReader() {
  if (file_ >= 0) close(file_);
}

Status SnapshotFileReader::Open(const std::string& path,
                                std::unique_ptr<SnapshotFileReader>* out) try {
  std::unique_ptr<SnapshotFileReader> reader(new SnapshotFileReader(path));
  LODESTAR_RETURN_IF_ERROR(
      OpenRegularFile(path, &reader->file_, &reader->size_));
  LODESTAR_RETURN_IF_ERROR(reader->ReadFileHeader());
#ifdef POSIX_FADV_SEQUENTIAL
  (void)posix_fadvise(reader->file_, 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
  *out = std::move(reader);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for reading a snapshot file.");
}

Status SnapshotFileReader::ReadFileHeader() {
  SnapshotFileHeader header;
  if (size_ < static_cast<int64_t>(sizeof(header))) {
    return DamageAt(path_, size_, "the file ends here, expected a header of ",
                    sizeof(header), " bytes");
  }
  LODESTAR_RETURN_IF_ERROR(Read(0, sizeof(header), &header));
  if (std::memcmp(header.magic, kSnapshotFileMagic, sizeof(header.magic)) !=
      0) {
    return DamageAt(path_, 0,
                    "not a snapshot file, which begins with LODESNAP");
  }
  if (header.crc != header.Crc()) {
    return DamageAt(path_, offsetof(SnapshotFileHeader, crc),
                    "the file header's checksum is ", HexOf(header.Crc()),
                    ", expected ", HexOf(header.crc));
  }
  if (header.version != kSnapshotFormatVersion) {
    return Status(
        StatusCode::kUnimplemented,
        StrCat("'", path_, "' is a snapshot file of version ", header.version,
               ", but only version ", kSnapshotFormatVersion, " is supported"));
  }
  Block label;
  LODESTAR_RETURN_IF_ERROR(ReadBlock(kFirstBlock, &label));
  if (label.kind != BlockKind::kLabel) {
    return DamageAt(path_, kFirstBlock, "the first block is a ",
                    NameOf(label.kind), " block, expected LABEL");
  }
  label_.assign(label.payload.begin(), label.payload.end());
  first_block_ = label.next;
  head_crc_ = CrcWithBlock(Crc32c(&header, sizeof(header)),
                           SnapshotBlockHeader::Create(label.kind, label.count,
                                                       label.bytes, label.crc));
  return Status();
}

Status SnapshotFileReader::Read(int64_t offset, int64_t bytes,
                                void* out) const {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t count = pread(file_, static_cast<char*>(out) + done,
                                bytes - done, offset + done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(path_, "read", errno);
    if (count == 0) {
      return DamageAt(path_, offset + done, "the file ends here, but it had ",
                      size_, " bytes when it was opened");
    }
    done += count;
  }
  return Status();
}

Status SnapshotFileReader::ReadHeader(int64_t offset, Block* block) const {
  block->offset = offset;
  if (offset < kFirstBlock || offset % kSnapshotPadding != 0) {
    return InvalidArgument("'", path_, "', byte ", offset,
                           ": no block begins here.");
  }
  SnapshotBlockHeader header;
  if (offset > size_ - kBlockHeader) {
    return DamageAt(path_, size_,
                    "the file ends here, expected a block at byte ", offset,
                    " and a final END block: the file is truncated");
  }
  LODESTAR_RETURN_IF_ERROR(Read(offset, kBlockHeader, &header));
  if (header.magic != kSnapshotBlockMagic) {
    return DamageAt(path_, offset, "the block begins with ",
                    HexOf(header.magic), ", expected ",
                    HexOf(kSnapshotBlockMagic));
  }
  if (header.crc != header.Crc()) {
    return DamageAt(path_, offset, "the block header's checksum is ",
                    HexOf(header.Crc()), ", expected ", HexOf(header.crc));
  }
  if (header.kind < static_cast<uint16_t>(BlockKind::kTable) ||
      header.kind > static_cast<uint16_t>(BlockKind::kLabel)) {
    return DamageAt(path_, offset, "the block's kind is ", header.kind,
                    ", expected 1 to 9");
  }
  if (header.zero != 0) {
    return DamageAt(path_, offset, "the block header has ", header.zero,
                    " after its kind, expected 0");
  }
  const BlockKind kind = static_cast<BlockKind>(header.kind);
  if (header.bytes > uint64_t{kMaxPayload}) {
    return DamageAt(path_, offset, "the ", NameOf(kind), " block has ",
                    header.bytes, " bytes, expected at most ", kMaxPayload);
  }
  const int64_t bytes = static_cast<int64_t>(header.bytes);
  const int64_t end = offset + kBlockHeader + bytes + PaddingOf(bytes);
  if (end > size_) {
    return DamageAt(path_, size_, "the file ends here, but its ", NameOf(kind),
                    " block at byte ", offset, " ends at byte ", end,
                    ": the file is truncated");
  }
  const uint64_t record_bytes = RecordBytesOf(kind);
  const bool fits =
      kind == BlockKind::kTable ? header.count == 1 && bytes > 0
      : kind == BlockKind::kEnd
          ? header.count == kSnapshotTotals && bytes == sizeof(SnapshotTotals)
      : bytes == 0 || header.count == 0 ? false
      // Divides, since a product of untrusted values may overflow.
      : record_bytes != 0 ? header.count == header.bytes / record_bytes &&
                                header.bytes % record_bytes == 0
                          : header.bytes % header.count == 0;
  if (!fits) {
    return DamageAt(path_, offset, "the ", NameOf(kind), " block has ",
                    header.count, " records in ", bytes, " bytes");
  }
  if (kind == BlockKind::kEnd && end != size_) {
    return DamageAt(path_, end, "there are ", size_ - end,
                    " bytes after END, expected none");
  }
  block->kind = kind;
  block->count = static_cast<int64_t>(header.count);
  block->next = kind == BlockKind::kEnd ? -1 : end;
  block->bytes = bytes;
  block->crc = header.payload_crc;
  return Status();
}

Status SnapshotFileReader::ReadPayload(Block* block) const try {
  const int64_t padding = PaddingOf(block->bytes);
  // Reads the padding along with the payload.
  block->payload.resize(block->bytes + padding);
  LODESTAR_RETURN_IF_ERROR(
      Read(block->OffsetOf(0), block->bytes + padding, block->payload.data()));
  for (int64_t i = block->bytes; i < block->bytes + padding; ++i) {
    if (block->payload[i] != 0) {
      return DamageAt(path_, block->OffsetOf(i), "the ", NameOf(block->kind),
                      " block's padding is ",
                      int{static_cast<uint8_t>(block->payload[i])},
                      ", expected 0");
    }
  }
  block->payload.resize(block->bytes);
  const uint32_t crc = Crc32c(block->payload.data(), block->bytes);
  if (crc != block->crc) {
    return DamageAt(path_, block->OffsetOf(0), "the checksum of the ",
                    NameOf(block->kind), " block's ", block->bytes,
                    " bytes is ", HexOf(crc), ", expected ", HexOf(block->crc));
  }
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for a block of ", block->bytes,
                           " bytes of '", path_, "'.");
}

Status SnapshotFileReader::ReadBlock(int64_t offset, Block* block) const {
  LODESTAR_RETURN_IF_ERROR(ReadHeader(offset, block));
  return ReadPayload(block);
}

SnapshotTotals SnapshotFileReader::ClaimedTotals() const {
  Block end;
  const Status status = ReadBlock(
      size_ - kBlockHeader - static_cast<int64_t>(sizeof(SnapshotTotals)),
      &end);
  return status.ok() && end.kind == BlockKind::kEnd ? end.at<SnapshotTotals>(0)
                                                    : SnapshotTotals();
}

SnapshotScan::SnapshotScan(const SnapshotFileReader& reader)
    : reader_(reader), next_(reader.first_block()), crc_(reader.head_crc()) {}

Status SnapshotScan::Next(SnapshotFileReader::Block* block, bool* more) {
  LODESTAR_RETURN_IF_ERROR(Claim(block, more));
  return *more ? reader_.ReadPayload(block) : Status();
}

Status SnapshotScan::ForEach(const ParallelFor* parallel, const Visit& visit) {
  Mutex mutex;
  Status first;
  int64_t first_offset = reader_.size();
  // Each thread takes blocks until none is left.
  const auto drain = [&](int64_t, int64_t) {
    SnapshotFileReader::Block block;
    for (bool more = true; more;) {
      Status status = Next(&block, &more);
      if (status.ok() && more) status = visit(block);
      if (status.ok()) continue;
      Stop();
      MutexLock lock(&mutex);
      if (block.offset < first_offset || first.ok()) {
        first_offset = block.offset;
        first = std::move(status);
      }
      return;
    }
  };
  constexpr int64_t kShares = 256;
  constexpr int64_t kCostOfShare = 1000000;
  RunParallel(parallel, kShares, kCostOfShare, drain);
  return first;
}

void SnapshotScan::Stop() {
  MutexLock lock(&mutex_);
  next_ = -1;
}

Status SnapshotScan::Claim(SnapshotFileReader::Block* block, bool* more) {
  MutexLock lock(&mutex_);
  *more = false;
  if (next_ < 0) return Status();
  const int64_t offset = next_;
  next_ = -1;
  LODESTAR_RETURN_IF_ERROR(reader_.ReadHeader(offset, block));
  LODESTAR_RETURN_IF_ERROR(CheckOrder(*block));
  crc_ =
      CrcWithBlock(crc_, SnapshotBlockHeader::Create(block->kind, block->count,
                                                     block->bytes, block->crc));
  if (block->kind == BlockKind::kEnd) return CheckEnd(block);
  is_table_ |= block->kind == BlockKind::kTable;
  has_rows_ |= block->kind == BlockKind::kRows;
  totals_.Add(block->kind, block->count);
  next_ = block->next;
  *more = true;
  return Status();
}

Status SnapshotScan::CheckOrder(const SnapshotFileReader::Block& block) const {
  const bool first = block.offset == reader_.first_block();
  const auto misplaced = [&](const char* rule) {
    return DamageAt(reader_.path(), block.offset, "a ", NameOf(block.kind),
                    " block, but ", rule);
  };
  switch (block.kind) {
    case BlockKind::kTable:
      if (!first) return misplaced("TABLE must be the first block");
      break;
    case BlockKind::kBlob:
      if (is_table_) return misplaced("the file contains a table");
      break;
    case BlockKind::kRemoved:
      if (has_rows_) return misplaced("REMOVED must precede ROWS");
      [[fallthrough]];
    case BlockKind::kRows:
    case BlockKind::kPending:
    case BlockKind::kSketch:
    case BlockKind::kSharedRows:
      if (!is_table_) return misplaced("the file does not begin with TABLE");
      break;
    case BlockKind::kLabel:
      return misplaced("LABEL must be the first block");
    case BlockKind::kEnd:
      break;
  }
  return Status();
}

Status SnapshotScan::CheckEnd(SnapshotFileReader::Block* end) const {
  LODESTAR_RETURN_IF_ERROR(reader_.ReadPayload(end));
  const auto said = end->at<SnapshotTotals>(0);
  if (said == totals_) return Status();
  const auto listed = [](const SnapshotTotals& totals) {
    return StrCat(totals.rows, " rows, ", totals.removed, " removed ids, ",
                  totals.pending, " pending ids, ", totals.sketch,
                  " bytes of a sketch, ", totals.shared_rows,
                  " shared rows and ", totals.blobs, " bytes of blobs");
  };
  return DamageAt(reader_.path(), end->OffsetOf(0), "the file has ",
                  listed(totals_), ", but END has ", listed(said));
}

Status ListedFile::Check(const SnapshotScan& scan) const {
  if (!content.has_value()) return Status();
  if (scan.crc() != content->crc32c) {
    return DataLoss("'", path, "': the file has the checksum ", scan.crc(),
                    ", but ", content->crc32c, " in its manifest");
  }
  const SnapshotTotals& totals = scan.totals();
  if (totals.rows == content->rows && totals.removed == content->removed) {
    return Status();
  }
  return DataLoss("'", path, "': the file has ", totals.rows, " rows and ",
                  totals.removed, " removed ids, but ", content->rows, " and ",
                  content->removed, " in its manifest");
}

}  // namespace lodestar
