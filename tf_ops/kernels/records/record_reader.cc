#include "tf_ops/kernels/records/record_reader.h"

#include <algorithm>
#include <cstring>

#include "tf_ops/kernels/base/status_util.h"

namespace lodestar {
namespace {

// Small enough for a fast first batch, large enough to amortize the transfer
// between threads.
constexpr int64_t kPieceBytes = 512 << 10;

}  // namespace

absl::Status RecordReader::Fill() {
  if (size_ == capacity_) {
    const int64_t capacity = capacity_ == 0 ? kPieceBytes : 2 * capacity_;
    std::unique_ptr<char[]> buffer(new char[capacity]);
    if (size_ > 0) std::memcpy(buffer.get(), buffer_.get(), size_);
    buffer_ = std::move(buffer);
    capacity_ = capacity;
  }
  int64_t read = 0;
  LODESTAR_TRY(stream_->Read(capacity_ - size_, buffer_.get() + size_, &read));
  at_end_ = size_ + read < capacity_;
  size_ += read;
  return absl::OkStatus();
}

absl::Status RecordReader::Read(RecordPiece* piece) {
  RecordCut cut;
  while (true) {
    if (!at_end_) LODESTAR_TRY(Fill());
    if (may_be_empty_ && at_end_ && offset_ + size_ == 0) break;
    const char* const bytes = buffer_.get();
    cut = RecordCut();
    LODESTAR_TRY(Prefixed(cutter_->Next(bytes, bytes + size_, at_end_, &cut),
                          path_, ": "));
    if (cut.records > 0 || at_end_) break;
  }
  *piece = RecordPiece();
  if (cut.records == 0) return absl::OkStatus();
  const int64_t taken = cut.header + cut.bytes;
  piece->offset = offset_ + cut.header;
  piece->first_record = next_record_;
  piece->num_records = cut.records;
  piece->variant = cut.variant;
  piece->buffer = std::move(buffer_);
  piece->begin = piece->buffer.get() + cut.header;
  piece->end = piece->buffer.get() + taken;
  // The rest is the beginning of the next piece.
  size_ -= taken;
  capacity_ = std::max(kPieceBytes, size_);
  buffer_.reset(new char[capacity_]);
  if (size_ > 0) std::memcpy(buffer_.get(), piece->end, size_);
  offset_ += taken;
  next_record_ += cut.records;
  if (cut.last) {
    at_end_ = true;
    size_ = 0;
  }
  return absl::OkStatus();
}

}  // namespace lodestar
