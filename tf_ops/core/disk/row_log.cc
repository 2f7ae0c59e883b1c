#include "tf_ops/core/disk/row_log.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace lodestar {
namespace {

// Large enough to write at the speed of the disk, small enough that a table
// holds few unwritten records: it has one such extent per shard.
constexpr int64_t kExtentBytes = int64_t{256} << 10;

constexpr int64_t kMostRecords = std::numeric_limits<uint32_t>::max();

}  // namespace

RowLog::RowLog(int64_t record_bytes, std::unique_ptr<DiskFile> file)
    : record_bytes_(record_bytes),
      per_extent_(std::max<int64_t>(1, kExtentBytes / record_bytes)),
      file_(std::move(file)) {}

int64_t RowLog::memory_bytes() const {
  int64_t buffers = 0;
  for (const Extent& extent : extents_) buffers += extent.buffer != nullptr;
  return buffers * extent_bytes() +
         static_cast<int64_t>(exists_.capacity() * sizeof(uint64_t) +
                              extents_.capacity() * sizeof(Extent));
}

Status RowLog::Reserve(int64_t count) {
  while (room() < count) LODESTAR_RETURN_IF_ERROR(AddExtent());
  return Status();
}

Status RowLog::AddExtent() try {
  std::unique_ptr<char[]> buffer(new char[extent_bytes()]);
  if (free_.empty()) {
    const int64_t count = num_extents() + 1;
    if (count * per_extent_ > kMostRecords) {
      return ResourceExhausted("a shard on disk is limited to ", kMostRecords,
                               " rows.");
    }
    for (std::vector<int64_t>* list : {&ready_, &full_, &free_}) {
      if (static_cast<int64_t>(list->capacity()) < count) {
        list->reserve(2 * count);
      }
    }
    exists_.resize(count * per_extent_ / 64 + 1);
    LODESTAR_RETURN_IF_ERROR(file_->Extend(count * extent_bytes()));
    extents_.emplace_back();
    free_.push_back(count - 1);
  }
  const int64_t extent = free_.back();
  free_.pop_back();
  extents_[extent].buffer = std::move(buffer);
  // Before the tail, which is the last one.
  ready_.insert(ready_.empty() ? ready_.end() : ready_.end() - 1, extent);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for rows on their way to the disk.");
}

uint32_t RowLog::Append(const void* record) {
  const int64_t tail = ready_.back();
  const uint32_t number =
      static_cast<uint32_t>(tail * per_extent_ + tail_size_);
  Extent& extent = extents_[tail];
  std::memcpy(extent.buffer.get() + place_of(number), record, record_bytes_);
  exists_[number / 64] |= uint64_t{1} << (number % 64);
  ++extent.size;
  ++size_;
  if (++tail_size_ == per_extent_) {
    ready_.pop_back();
    tail_size_ = 0;
    full_.push_back(tail);
  }
  return number;
}

Status RowLog::Flush() {
  while (!full_.empty()) {
    const int64_t number = full_.back();
    Extent& extent = extents_[number];
    if (extent.size > 0) {
      LODESTAR_RETURN_IF_ERROR(file_->Write(extent.buffer.get(), extent_bytes(),
                                            number * extent_bytes()));
    }
    extent.buffer.reset();
    full_.pop_back();
    if (extent.size == 0) free_.push_back(number);
  }
  return Status();
}

Status RowLog::Read(Span<const uint32_t> numbers, void* records) const try {
  std::vector<DiskFile::Range> ranges;
  char* out = static_cast<char*>(records);
  for (int64_t i = 0; i < numbers.size(); ++i, out += record_bytes_) {
    const Extent& extent = extents_[extent_of(numbers[i])];
    if (extent.buffer != nullptr) {
      std::memcpy(out, extent.buffer.get() + place_of(numbers[i]),
                  record_bytes_);
    } else {
      ranges.push_back({numbers[i] * record_bytes_, record_bytes_, out});
    }
  }
  return file_->Read(ranges);
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for reading ", numbers.size(),
                           " rows from the disk.");
}

void RowLog::Remove(uint32_t number) {
  exists_[number / 64] &= ~(uint64_t{1} << (number % 64));
  Extent& extent = extents_[extent_of(number)];
  --extent.size;
  --size_;
  // Flush frees an extent that is not written yet.
  if (extent.size == 0 && extent.buffer == nullptr) {
    free_.push_back(extent_of(number));
  }
}

bool RowLog::wants_compaction() const {
  int64_t written = 0;
  int64_t existing = 0;
  for (const Extent& extent : extents_) {
    if (!extent.written()) continue;
    written += per_extent_;
    existing += extent.size;
  }
  return written - existing > existing / 2;
}

int64_t RowLog::Emptiest() const {
  int64_t emptiest = -1;
  for (int64_t e = 0; e < num_extents(); ++e) {
    if (!extents_[e].written()) continue;
    if (emptiest < 0 || extents_[e].size < extents_[emptiest].size) {
      emptiest = e;
    }
  }
  return emptiest;
}

Status RowLog::BeginMove(int64_t extent, std::unique_ptr<char[]>* content) try {
  content->reset(new char[extent_bytes()]);
  LODESTAR_RETURN_IF_ERROR(Reserve(extents_[extent].size));
  const DiskFile::Range range = {extent * extent_bytes(), extent_bytes(),
                                 content->get()};
  return file_->Read({&range, 1});
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for moving rows on the disk.");
}

}  // namespace lodestar
