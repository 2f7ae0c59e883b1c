// RowLog: rows of one shard that do not fit into memory, as records of equal
// size. Records are appended to extents of a file, and an extent is written
// when it is full: rows leave memory in no order, and writing each to a place
// of its own takes about 30 times as long as writing them one after another.
// Space of removed records is regained by moving the others out of the emptiest
// extent (as in Rosenblum and Ousterhout, "The Design and Implementation of a
// Log-Structured File System", 1992).
//
// The caller finds records by number. An update of a row removes its record and
// appends another one.

#ifndef LODESTAR_TF_OPS_CORE_DISK_ROW_LOG_H_
#define LODESTAR_TF_OPS_CORE_DISK_ROW_LOG_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/disk/disk_file.h"

namespace lodestar {

// Const methods may run at the same time.
class RowLog {
 public:
  // Requires: record_bytes >= 1.
  RowLog(int64_t record_bytes, std::unique_ptr<DiskFile> file);
  RowLog(const RowLog&) = delete;
  RowLog& operator=(const RowLog&) = delete;

  // Makes room in memory and on the disk for `count` Append calls in total.
  // Returns ResourceExhausted if either is full. No record changes.
  Status Reserve(int64_t count);
  // Returns the number of a new record. Requires room.
  uint32_t Append(const void* record);
  // Writes full extents and frees their memory. Extents that cannot be written
  // stay in memory until a later Flush.
  Status Flush();

  // Copies records out: [numbers.size(), record_bytes]. Requires: they exist.
  Status Read(Span<const uint32_t> numbers, void* records) const;
  // Requires: the record exists.
  void Remove(uint32_t number);

  // Whether removed records take more than half of the space of the others.
  bool wants_compaction() const;
  // Moves the records of the emptiest extent to the end, and calls
  // moved(from, to, record) for each. Returns the errors of Reserve and Read;
  // nothing has changed then. Does nothing without a written extent.
  template <typename Moved>
  Status CompactOne(const Moved& moved);

  int64_t size() const { return size_; }
  int64_t record_bytes() const { return record_bytes_; }
  // Reserved space on the disk.
  int64_t file_bytes() const { return num_extents() * extent_bytes(); }
  int64_t memory_bytes() const;

 private:
  struct Extent {
    int64_t size = 0;  // existing records
    // The content, until it is written to the file; else null.
    std::unique_ptr<char[]> buffer;

    // Whether it has records and all of them are in the file.
    bool written() const { return buffer == nullptr && size > 0; }
  };

  int64_t num_extents() const { return static_cast<int64_t>(extents_.size()); }
  int64_t extent_bytes() const { return per_extent_ * record_bytes_; }
  int64_t extent_of(uint32_t number) const { return number / per_extent_; }
  int64_t place_of(uint32_t number) const {
    return number % per_extent_ * record_bytes_;
  }
  bool Exists(uint32_t number) const {
    return (exists_[number / 64] >> (number % 64) & 1) != 0;
  }
  // Number of records that Append has room for.
  int64_t room() const {
    return static_cast<int64_t>(ready_.size()) * per_extent_ - tail_size_;
  }
  Status AddExtent();
  // The written extent with the fewest records, or -1.
  int64_t Emptiest() const;
  // Reads an extent, and makes room for its records elsewhere.
  Status BeginMove(int64_t extent, std::unique_ptr<char[]>* content);

  const int64_t record_bytes_;
  const int64_t per_extent_;  // records
  const std::unique_ptr<DiskFile> file_;
  int64_t size_ = 0;
  std::vector<Extent> extents_;
  std::vector<uint64_t> exists_;  // one bit per record
  // Numbers of extents. Records are appended to the last of `ready_`, which has
  // `tail_size_` records; the extents of ready_ have buffers. `full_` waits to
  // be written. All have capacity for num_extents().
  std::vector<int64_t> ready_;
  std::vector<int64_t> full_;
  std::vector<int64_t> free_;
  int64_t tail_size_ = 0;
};

template <typename Moved>
Status RowLog::CompactOne(const Moved& moved) {
  const int64_t extent = Emptiest();
  if (extent < 0) return Status();
  std::unique_ptr<char[]> content;
  LODESTAR_RETURN_IF_ERROR(BeginMove(extent, &content));
  for (int64_t i = 0; i < per_extent_; ++i) {
    const uint32_t from = static_cast<uint32_t>(extent * per_extent_ + i);
    if (!Exists(from)) continue;
    const char* const record = content.get() + i * record_bytes_;
    const uint32_t to = Append(record);
    Remove(from);
    moved(from, to, record);
  }
  return Status();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DISK_ROW_LOG_H_
