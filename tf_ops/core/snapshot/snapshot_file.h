// Snapshot files: a header and blocks, each with checksums of its own. What
// the bytes are is documented in docs/snapshot.md.
//
//   "LODESNAP" version crc | LABEL block | block | ... | END block
//   block:  magic kind count bytes crc crc | payload, padded to 8 bytes
//
// Errors of what a file holds are DataLoss and name the file, the byte, what
// was found there and what was wanted; those of the system name the file and
// the system's own words.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FILE_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FILE_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/status.h"
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

// "ROWS".
const char* NameOf(BlockKind kind);

// The sums of the counts of a file's blocks, by kind; the payload of END.
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

// What an operation on a file called `path` fails with; error: errno.
Status FileError(const std::string& path, const char* operation, int error);

// The status of byte `offset` of a file that is not as it has to be.
template <typename... Args>
Status DamageAt(const std::string& path, int64_t offset, const Args&... args) {
  return DataLoss("'", path, "', byte ", offset, ": ", args...);
}

// Not thread-safe. After an error, which every later call returns too, the file
// is closed, and what was written of it stays.
class SnapshotFileWriter {
 public:
  // label: says what the file is a part of, to whoever reads it; if it is empty
  // the file has none, and is of version 1 of the format.
  // AlreadyExists: there is a file called `path`.
  static Status Create(const std::string& path,
                       std::unique_ptr<SnapshotFileWriter>* out,
                       const std::string& label = "");
  // A file that was not finished has no END.
  ~SnapshotFileWriter();
  SnapshotFileWriter(const SnapshotFileWriter&) = delete;
  SnapshotFileWriter& operator=(const SnapshotFileWriter&) = delete;

  // Adds a block of `count` records, or nothing if that is 0.
  // ResourceExhausted: the disk, or its quota, is full. InvalidArgument: END,
  // LABEL, or a payload that no reader accepts; the file is as before.
  Status Append(BlockKind kind, int64_t count, const void* payload,
                int64_t bytes);
  // Adds END, and waits until the disk holds the file. Its folder has to be
  // synced too before the file's name is sure to last.
  Status Finish();

  const std::string& path() const { return path_; }
  const SnapshotTotals& totals() const { return totals_; }
  // Of what was added.
  int64_t bytes() const { return bytes_; }
  uint32_t crc() const { return crc_; }

 private:
  // Stays in the cache of a core while it is filled and written.
  static constexpr int64_t kBufferBytes = int64_t{1} << 20;
  // As many go to the disk at once: fewer would keep the caller waiting for it.
  static constexpr int64_t kStartBytes = int64_t{64} << 20;

  explicit SnapshotFileWriter(const std::string& path) : path_(path) {}

  Status AppendBlock(BlockKind kind, int64_t count, const void* payload,
                     int64_t bytes);
  Status Write(const void* data, int64_t bytes);
  Status WriteOut();
  Status Fail(const char* operation, int error);
  int Close();

  const std::string path_;
  int file_ = -1;  // closed
  Arena memory_;
  // Begins on a page: the system is slow to copy from elsewhere.
  char* buffer_ = nullptr;
  int64_t buffered_ = 0;  // bytes that are still to be written
  Status status_;         // of what failed first
  SnapshotTotals totals_;
  int64_t bytes_ = 0;
  int64_t written_ = 0;
  int64_t started_ = 0;  // bytes that the disk was told to take
  uint32_t crc_ = 0;
};

class SnapshotFileReader {
 public:
  // Where the first block is, LABEL if the file has one.
  static constexpr int64_t kFirstBlock = 16;
  // Of a payload; a writer aims at blocks of 1 MiB.
  static constexpr int64_t kMaxPayload = int64_t{64} << 20;
  // Of what stands before a payload.
  static constexpr int64_t kBlockHeader = 32;

  struct Block {
    BlockKind kind = BlockKind::kEnd;
    int64_t count = 0;
    int64_t offset = 0;  // of the block
    int64_t next = -1;   // of the block behind it; -1: this is END
    int64_t bytes = 0;   // of the payload
    uint32_t crc = 0;    // of the payload
    std::vector<char> payload;

    // Of byte `i` of the payload in the file.
    int64_t OffsetOf(int64_t i) const { return offset + kBlockHeader + i; }
    // The T that begins there.
    template <typename T>
    T at(int64_t i) const {
      T value;
      std::memcpy(&value, payload.data() + i, sizeof(value));
      return value;
    }
  };

  // NotFound: there is no such file. Unimplemented: it is of another version of
  // the format.
  static Status Open(const std::string& path,
                     std::unique_ptr<SnapshotFileReader>* out);
  ~SnapshotFileReader();
  SnapshotFileReader(const SnapshotFileReader&) = delete;
  SnapshotFileReader& operator=(const SnapshotFileReader&) = delete;

  // Any thread.

  // The block that begins at `offset`; everything that its header says is
  // checked against the file's size. block->payload stays as it is.
  Status ReadHeader(int64_t offset, Block* block) const;
  // With its payload, its checksum and its padding checked. ResourceExhausted:
  // out of memory.
  Status ReadBlock(int64_t offset, Block* block) const;
  // The payload of a block whose header was read.
  Status ReadPayload(Block* block) const;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // Where the first block behind LABEL is, and the checksum of what is before.
  int64_t first_block() const { return first_block_; }
  uint32_t head_crc() const { return head_crc_; }

 private:
  explicit SnapshotFileReader(const std::string& path) : path_(path) {}
  Status ReadFileHeader();
  Status Read(int64_t offset, int64_t bytes, void* out) const;

  const std::string path_;
  int file_ = -1;
  int64_t size_ = 0;
  int64_t first_block_ = kFirstBlock;
  uint32_t head_crc_ = 0;
};

// Goes once through the blocks of a file, on any number of threads. The file is
// either a table (one TABLE, then any others but BLOB; REMOVED before ROWS) or
// blobs (BLOB only), LABEL aside; END is its last block and agrees with the
// others.
class SnapshotScan {
 public:
  // payloads: read them too, else the headers only. The reader has to live for
  // as long as the scan.
  SnapshotScan(const SnapshotFileReader& reader, bool payloads);

  // Any thread. The next block, END left out; *more becomes false when there is
  // none. After an error there is none either.
  Status Next(SnapshotFileReader::Block* block, bool* more);
  // visit(block) for every block that is left, in no order. Of several errors,
  // its own or those of `visit`, the first in the file.
  using Visit = std::function<Status(const SnapshotFileReader::Block&)>;
  Status ForEach(const ParallelFor* parallel, const Visit& visit);

  // After the last block.
  const SnapshotTotals& totals() const LODESTAR_NO_THREAD_SAFETY_ANALYSIS {
    return totals_;
  }
  // Of the whole file, if its payloads were read.
  uint32_t crc() const LODESTAR_NO_THREAD_SAFETY_ANALYSIS { return crc_; }

 private:
  void Stop();
  Status Claim(SnapshotFileReader::Block* block, bool* more);
  Status CheckOrder(const SnapshotFileReader::Block& block) const
      LODESTAR_REQUIRES(mutex_);
  Status CheckEnd(SnapshotFileReader::Block* end) const
      LODESTAR_REQUIRES(mutex_);

  const SnapshotFileReader& reader_;
  const bool payloads_;
  Mutex mutex_;
  int64_t next_ LODESTAR_GUARDED_BY(mutex_);
  bool is_table_ LODESTAR_GUARDED_BY(mutex_) = false;
  bool has_rows_ LODESTAR_GUARDED_BY(mutex_) = false;
  SnapshotTotals totals_ LODESTAR_GUARDED_BY(mutex_);
  uint32_t crc_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FILE_H_
