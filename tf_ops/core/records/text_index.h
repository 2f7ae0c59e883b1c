// TextIndex: where a text file of records, such as CSV, can be cut into blocks
// that are parsed independently.
//
// The rules follow pyarrow.csv with newlines_in_values, double_quote and
// ignore_empty_lines:
//   - A record ends at "\n", "\r\n" or "\r" outside quotes, or at the end of
//     the file. A line without bytes is not a record.
//   - A quote at the start of a field opens quotes. Inside them, a doubled
//     quote is a literal quote, and a single one closes them. Any other quote
//     is literal.
//   - A UTF-8 byte order mark at the start of the file is not part of a field.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_TEXT_INDEX_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_TEXT_INDEX_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// Not thread-safe.
class TextIndex {
 public:
  static constexpr char kNoQuote = 0;

  // Requires: block_bytes >= 1; `delimiter` and `quote` are different ASCII
  // characters, neither '\r' nor '\n'; `quote` may be kNoQuote.
  TextIndex(int64_t block_bytes, char delimiter, char quote);

  // Scans the next bytes of the file, [begin, end).
  void Add(const char* begin, const char* end);

  // Call once, after the last Add(). Returns kInvalidArgument if a quote is not
  // closed; the message names the record (from 0) and its first byte.
  Status Finish();

  // The first byte of each block, then size(). Block i is [offsets()[i],
  // offsets()[i + 1]). Except the last, a block ends at the first line end that
  // makes it at least `block_bytes` long.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  // The number of records in each block; 0 if it has only empty lines.
  const std::vector<int64_t>& records() const { return records_; }
  // The number of bytes added.
  int64_t size() const { return size_; }
  // Whether the last record ends with a line end. True if there are no records.
  bool ends_with_newline() const { return state_ == State::kLineStart; }

 private:
  // What precedes the next byte. kAfterQuote: a quote inside quotes, which
  // closes them unless another one follows.
  enum class State {
    kLineStart,
    kFieldStart,
    kInField,
    kInQuotes,
    kAfterQuote
  };

  const char* SkipByteOrderMark(const char* begin);
  // Scans [begin, end), which has no quote that opens or closes quotes.
  void ScanUnquoted(const char* begin, const char* end);
  // Counts the records that end in [begin, end) and updates state_.
  void CountRecords(const char* begin, const char* end);
  void EndBlock(int64_t offset);
  int64_t OffsetOf(const char* p) const { return size_ + (p - chunk_); }

  const int64_t block_bytes_;
  const char delimiter_;
  const char quote_;

  State state_ = State::kLineStart;
  const char* chunk_ = nullptr;  // the bytes of this Add(); they begin at size_
  const char* chunk_end_ = nullptr;
  int64_t size_ = 0;
  int64_t line_begin_ = 0;      // where the current line begins
  bool maybe_mark_ = true;      // all bytes so far belong to a byte order mark
  bool cuts_after_cr_ = false;  // at size_, or after a '\n' that follows
  int64_t block_records_ = 0;
  int64_t earlier_records_ = 0;  // in complete blocks
  std::vector<int64_t> offsets_ = {0};
  std::vector<int64_t> records_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_TEXT_INDEX_H_
