// Snapshot files: a header and blocks, each with checksums. The byte format is
// documented in docs/internals/formats.md.
//
//   "LODESNAP" version crc | LABEL block | block | ... | END block
//   block:  magic kind count bytes crc crc | payload, padded to 8 bytes
//
// Errors in the contents are DataLoss, with the file, the byte, and the found
// and expected values. System errors contain the file and the system's message.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FILE_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FILE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/disk/file_error.h"
#include "tf_ops/core/memory/arena.h"

namespace lodestar {

enum class BlockKind : uint16_t {
  kTable = 1,
  kRows,
  kRemoved,
  kPending,
  kSketch,
  kSharedRows,
  kBlob,
  kEnd,
  kLabel,
};

// Returns a name such as "ROWS".
const char* NameOf(BlockKind kind);

// Record counts of a file by block kind; the payload of END.
struct SnapshotTotals {
  int64_t rows = 0;
  int64_t removed = 0;
  int64_t pending = 0;
  int64_t sketch = 0;  // bytes
  int64_t shared_rows = 0;
  int64_t blobs = 0;  // bytes

  void Add(BlockKind kind, int64_t count);
  bool operator==(const SnapshotTotals& other) const;
};

// Returns the size and the CRC32C of any regular file. Returns NotFound or
// PermissionDenied if it cannot be opened.
Status FileCrc(const std::string& path, int64_t* bytes, uint32_t* crc);

// Returns the DataLoss error for byte `offset` of a file.
template <typename... Args>
Status DamageAt(const std::string& path, int64_t offset, const Args&... args) {
  return DataLoss("'", path, "', byte ", offset, ": ", args...);
}

// Not thread-safe. The first error closes the file, keeps the bytes written so
// far, and is returned by every later call.
class SnapshotFileWriter {
 public:
  // label: identifies the file; must not be empty. Returns AlreadyExists if
  // there is a file at `path`.
  static Status Create(const std::string& path, const std::string& label,
                       std::unique_ptr<SnapshotFileWriter>* out);
  // Size of the blocks that callers should append.
  static constexpr int64_t kBlockBytes = int64_t{1} << 20;

  // An unfinished file has no END.
  ~SnapshotFileWriter();
  SnapshotFileWriter(const SnapshotFileWriter&) = delete;
  SnapshotFileWriter& operator=(const SnapshotFileWriter&) = delete;

  // Appends a block of `count` records, or nothing if `count` is 0. Returns
  // ResourceExhausted if the disk or quota is full. Returns InvalidArgument for
  // END, LABEL, or a payload that readers would reject; the file is then
  // unchanged.
  Status Append(BlockKind kind, int64_t count, const void* payload,
                int64_t bytes);
  // Appends END and syncs the file. The folder must be synced separately to
  // make the file's name durable.
  Status Finish();

  const std::string& path() const { return path_; }
  const SnapshotTotals& totals() const { return totals_; }
  // Size and checksum of the bytes appended so far.
  int64_t bytes() const { return bytes_; }
  uint32_t crc() const { return crc_; }

 private:
  // Fits the cache of a core.
  static constexpr int64_t kBufferBytes = int64_t{1} << 20;
  // Amount per call of sync_file_range. Smaller amounts would make the caller
  // wait for the disk.
  static constexpr int64_t kStartBytes = int64_t{64} << 20;

  explicit SnapshotFileWriter(const std::string& path) : path_(path) {}

  Status AppendBlock(BlockKind kind, int64_t count, const void* payload,
                     int64_t bytes);
  Status Write(const void* data, int64_t bytes);
  Status Flush();
  Status Fail(const char* operation, int error);
  int Close();

  const std::string path_;
  int file_ = -1;  // -1: closed
  Arena memory_;
  // Page-aligned, because the system copies from other addresses slowly.
  char* buffer_ = nullptr;
  int64_t buffered_ = 0;  // bytes not yet written to the file
  Status status_;         // the first error
  SnapshotTotals totals_;
  int64_t bytes_ = 0;
  int64_t written_ = 0;
  int64_t started_ = 0;  // bytes whose writeback was started
  uint32_t crc_ = 0;
};

// Collects records of one size and appends them in blocks.
class RecordBuffer {
 public:
  RecordBuffer(SnapshotFileWriter* file, int64_t record_bytes)
      : file_(file),
        record_bytes_(record_bytes),
        capacity_(std::max<int64_t>(
            1, SnapshotFileWriter::kBlockBytes / record_bytes)),
        records_(capacity_ * record_bytes) {}

  // Memory for the next left() records, of which the caller fills some.
  char* next() { return records_.data() + count_ * record_bytes_; }
  int64_t left() const { return capacity_ - count_; }
  void Add(int64_t count) { count_ += count; }
  // Appends the records as a block, if there are any.
  Status Flush(BlockKind kind) {
    const int64_t count = std::exchange(count_, 0);
    return file_->Append(kind, count, records_.data(), count * record_bytes_);
  }

 private:
  SnapshotFileWriter* const file_;
  const int64_t record_bytes_;
  const int64_t capacity_;
  int64_t count_ = 0;
  std::vector<char> records_;
};

class SnapshotFileReader {
 public:
  // Offset of the first block, which is LABEL.
  static constexpr int64_t kFirstBlock = 16;
  // Maximum payload size. Writers aim at blocks of 1 MiB.
  static constexpr int64_t kMaxPayload = int64_t{64} << 20;
  // Size of a block's header.
  static constexpr int64_t kBlockHeader = 32;

  struct Block {
    BlockKind kind = BlockKind::kEnd;
    int64_t count = 0;
    int64_t offset = 0;  // of the block
    int64_t next = -1;   // of the next block; -1: this is END
    int64_t bytes = 0;   // of the payload
    uint32_t crc = 0;    // of the payload
    std::vector<char> payload;

    // Returns the file offset of byte `i` of the payload.
    int64_t OffsetOf(int64_t i) const { return offset + kBlockHeader + i; }
    // Returns the T at byte `i` of the payload.
    template <typename T>
    T at(int64_t i) const {
      T value;
      std::memcpy(&value, payload.data() + i, sizeof(value));
      return value;
    }
  };

  // Returns NotFound if there is no such file, Unimplemented if it has an
  // unknown version of the format.
  static Status Open(const std::string& path,
                     std::unique_ptr<SnapshotFileReader>* out);
  ~SnapshotFileReader();
  SnapshotFileReader(const SnapshotFileReader&) = delete;
  SnapshotFileReader& operator=(const SnapshotFileReader&) = delete;

  // The remaining methods are thread-safe.

  // Reads the header of the block at `offset` and checks it against the file's
  // size. Does not change block->payload.
  Status ReadHeader(int64_t offset, Block* block) const;
  // Reads a block, and checks its checksums and padding. Returns
  // ResourceExhausted if out of memory.
  Status ReadBlock(int64_t offset, Block* block) const;
  // Reads the payload of a block whose header was read.
  Status ReadPayload(Block* block) const;
  // Returns the totals in END, or zeros if the file does not end with END. Only
  // a scan checks them.
  SnapshotTotals ClaimedTotals() const;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  const std::string& label() const { return label_; }
  // The offset of the first block after LABEL, and the checksum of all bytes
  // before it.
  int64_t first_block() const { return first_block_; }
  uint32_t head_crc() const { return head_crc_; }

 private:
  explicit SnapshotFileReader(const std::string& path) : path_(path) {}
  Status ReadFileHeader();
  Status Read(int64_t offset, int64_t bytes, void* out) const;

  const std::string path_;
  int file_ = -1;
  int64_t size_ = 0;
  std::string label_;
  int64_t first_block_ = 0;
  uint32_t head_crc_ = 0;
};

// Reads each block of a file once, on any number of threads. The file is either
// a table (one TABLE, then any other blocks except BLOB; REMOVED before ROWS)
// or blobs (only BLOB), apart from LABEL. The last block must be END with
// correct totals.
class SnapshotScan {
 public:
  // The reader must outlive the scan.
  explicit SnapshotScan(const SnapshotFileReader& reader);

  // Thread-safe. Returns the next block except END. Sets *more to false if
  // there is none, also after an error.
  Status Next(SnapshotFileReader::Block* block, bool* more);
  // Calls visit(block) for every remaining block, in no particular order. If
  // there are several errors, also from `visit`, returns the first in file
  // order.
  using Visit = std::function<Status(const SnapshotFileReader::Block&)>;
  Status ForEach(const ParallelFor* parallel, const Visit& visit);

  // Valid after the last block.
  const SnapshotTotals& totals() const LODESTAR_NO_THREAD_SAFETY_ANALYSIS {
    return totals_;
  }
  // Checksum of the whole file.
  uint32_t crc() const LODESTAR_NO_THREAD_SAFETY_ANALYSIS { return crc_; }

 private:
  void Stop();
  Status Claim(SnapshotFileReader::Block* block, bool* more);
  Status CheckOrder(const SnapshotFileReader::Block& block) const
      LODESTAR_REQUIRES(mutex_);
  Status CheckEnd(SnapshotFileReader::Block* end) const
      LODESTAR_REQUIRES(mutex_);

  const SnapshotFileReader& reader_;
  Mutex mutex_;
  int64_t next_ LODESTAR_GUARDED_BY(mutex_);
  bool is_table_ LODESTAR_GUARDED_BY(mutex_) = false;
  bool has_rows_ LODESTAR_GUARDED_BY(mutex_) = false;
  SnapshotTotals totals_ LODESTAR_GUARDED_BY(mutex_);
  uint32_t crc_ LODESTAR_GUARDED_BY(mutex_);
};

// A file as a manifest lists it.
struct ListedFile {
  struct Content {
    uint32_t crc32c = 0;
    int64_t rows = 0;
    int64_t removed = 0;
  };

  ListedFile() = default;
  // A file that no manifest lists.
  ListedFile(std::string name) : path(std::move(name)) {}
  ListedFile(std::string name, const Content& listed)
      : path(std::move(name)), content(listed) {}

  // Returns DataLoss unless the content is as listed. Requires: `scan` has read
  // all blocks of the file.
  Status Check(const SnapshotScan& scan) const;

  std::string path;
  std::optional<Content> content;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FILE_H_
