// TextIndex: where a text file of records, such as CSV, can be cut into blocks
// that are parsed independently.
//
// The rules follow pyarrow.csv with newlines_in_values, double_quote and
// ignore_empty_lines:
//   - A record ends at "\n", "\r\n" or "\r" outside quotes, or at the end of
//     the file. A line without bytes is not a record.
//   - A quote at the start of a field opens quotes. Inside them, a doubled
//     quote is a literal quote, and a single one closes them, before a
//     delimiter, a line end or the end of the file. Any other quote is literal.
//   - A UTF-8 byte order mark at the start of the file is not part of a field.
//
// Quotes that break these rules are errors. With `num_fields`, so is a record
// that spans lines if each of its lines is a record of that many fields when
// quotes are ordinary characters, because the text then has two readings.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_TEXT_INDEX_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_TEXT_INDEX_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace lodestar {

struct TextLayout {
  static constexpr char kNoQuote = 0;

  // Different ASCII characters, neither '\r' nor '\n'.
  char delimiter = ',';
  char quote = '"';  // may be kNoQuote
  // Number of lines before the first record, which may contain anything.
  int64_t skip_lines = 0;
  // Number of fields of a record; 0 if quoted fields may span lines anyway.
  int64_t num_fields = 0;
};

// Not thread-safe.
class TextIndex {
 public:
  // Requires: block_bytes >= 1.
  TextIndex(int64_t block_bytes, const TextLayout& layout);

  // Scans the next bytes of the file, [begin, end). Returns kInvalidArgument,
  // with the line (from 1), if quotes are wrong or have two readings. Do not
  // call any function after an error.
  Status Add(const char* begin, const char* end);

  // Call once, after the last Add(). Returns the errors of Add(), and
  // kInvalidArgument if a quote is not closed.
  Status Finish();

  // The first byte of each block, then size(). Block i is [offsets()[i],
  // offsets()[i + 1]). The first block begins after the skipped lines. Except
  // the last, a block ends at the first line end that makes it at least
  // `block_bytes` long.
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
  const char* SkipLines(const char* begin);
  // Scans [begin, end), which has no quote that opens or closes quotes.
  Status ScanUnquoted(const char* begin, const char* end);
  // Counts the records that end in [begin, end) and updates state_.
  void CountRecords(const char* begin, const char* end);
  // Counts the lines that end in [begin, end), which is in quotes.
  void ScanQuoted(const char* begin, const char* end);
  // Ends the current line of a record that spans lines.
  void EndQuotedLine(const char* end);
  // Ends a record that spans lines; its last line has `num_delimiters`.
  Status EndSpan(int64_t num_delimiters);
  // Returns the error of quotes that close before the byte `next`.
  Status BadClose(char next) const;
  // Counts the delimiters of the current line up to `end`.
  int64_t CountDelimiters(const char* end) const;
  void EndBlock(int64_t offset);
  int64_t OffsetOf(const char* p) const { return size_ + (p - chunk_); }

  const int64_t block_bytes_;
  const TextLayout layout_;

  State state_ = State::kLineStart;
  const char* chunk_ = nullptr;  // the bytes of this Add(); they begin at size_
  const char* chunk_end_ = nullptr;
  int64_t size_ = 0;
  char last_ = 0;                   // the byte before the next one
  int64_t num_lines_ = 0;           // that have ended
  int64_t line_begin_ = 0;          // where the current line begins
  int64_t earlier_delimiters_ = 0;  // of the current line, in earlier chunks
  int64_t lines_to_skip_;
  bool is_skipping_;
  bool maybe_mark_ = true;      // all bytes so far belong to a byte order mark
  bool cuts_after_cr_ = false;  // at size_, or after a '\n' that follows
  // The first line ends of each kind that are not before the last position of
  // ScanQuoted(); null if unknown.
  const char* next_lf_ = nullptr;
  const char* next_cr_ = nullptr;
  int64_t quote_line_ = 0;  // where the last quotes were opened, from 1
  // The line of the quotes that hold the first line end of the current record,
  // 0 if it does not span lines.
  int64_t span_line_ = 0;
  // Whether all earlier lines of the current record have the same number of
  // fields as a record, if quotes are ordinary characters.
  bool lines_are_records_ = true;
  int64_t block_records_ = 0;
  std::vector<int64_t> offsets_ = {0};
  std::vector<int64_t> records_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_TEXT_INDEX_H_
