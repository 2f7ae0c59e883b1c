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
#include <functional>
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

  // Scans the next bytes of the file, [begin, end). Returns false if quotes are
  // wrong or have two readings; then only Explain() may be called.
  bool Add(const char* begin, const char* end);

  // Call once, after the last Add(). Returns false like Add(), or if a quote is
  // not closed.
  bool Finish();

  // Maps the offset of a byte to its line, from 1.
  using LineOf = std::function<Status(int64_t offset, int64_t* line)>;
  // Returns the error (kInvalidArgument) if Add() or Finish() returned false,
  // or the error of `line_of`.
  Status Explain(const LineOf& line_of) const;

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
  void ScanUnquoted(const char* begin, const char* end);
  // Counts the records that end in [begin, end) and updates state_.
  void CountRecords(const char* begin, const char* end);
  // Notes the lines that end in [begin, end), which is in quotes.
  void ScanQuoted(const char* begin, const char* end);
  // Sets next_line_end_ for the bytes from `begin`.
  void FindLineEnd(const char* begin);
  // Ends a record that spans lines, in front of the line end at `end`. Returns
  // false if it has two readings.
  bool EndSpan(const char* end);
  // Returns the number of delimiters in the current line before `end`.
  int64_t CountDelimiters(const char* end) const;
  void EndBlock(int64_t offset);
  int64_t OffsetOf(const char* p) const { return size_ + (p - chunk_); }

  const int64_t block_bytes_;
  const TextLayout layout_;

  State state_ = State::kLineStart;
  const char* chunk_ = nullptr;  // the bytes of this Add(); they begin at size_
  const char* chunk_end_ = nullptr;
  int64_t size_ = 0;
  int64_t line_begin_ = 0;  // where the current line begins
  int64_t lines_to_skip_;
  bool is_skipping_;
  bool skips_lf_ = false;       // the last skipped line ended in CR
  bool maybe_mark_ = true;      // all bytes so far belong to a byte order mark
  bool cuts_after_cr_ = false;  // at size_, or after a '\n' that follows
  int64_t block_records_ = 0;
  std::vector<int64_t> offsets_ = {0};
  std::vector<int64_t> records_;

  // Quotes. The line ends are the first ones of this chunk that are not before
  // the last quotes.
  const char* next_line_end_ = nullptr;
  const char* next_lf_ = nullptr;
  const char* next_cr_ = nullptr;
  int64_t quote_ = 0;  // the last one that opened quotes
  // The quote that opened the quotes with the first line end of the current
  // record, or -1 if the record does not span lines.
  int64_t span_ = -1;
  // Whether the lines of the current record that have ended are records with
  // `num_fields` fields if quotes are ordinary characters.
  bool lines_are_records_ = true;
  // Number of delimiters of the current line in earlier chunks.
  int64_t earlier_delimiters_ = 0;

  // The error, and the byte at which it was found.
  enum class Fault { kNone, kNotClosed, kTextAfterQuote, kTwoReadings };
  Fault fault_ = Fault::kNone;
  int64_t fault_at_ = 0;
  char fault_byte_ = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_TEXT_INDEX_H_
