#include "tf_ops/core/records/text_index.h"

#include <algorithm>
#include <cstring>

namespace lodestar {
namespace {

constexpr char kByteOrderMark[] = "\xef\xbb\xbf";
constexpr int64_t kMarkBytes = 3;

bool IsLineEnd(char c) { return c == '\n' || c == '\r'; }

// The number of bytes of [begin, end) that end a line with bytes. The byte
// before `begin` exists. This form compiles to vector instructions.
int64_t CountLineEnds(const char* begin, const char* end) {
  int64_t count = 0;
  while (begin < end) {
    // The largest sum that fits a byte.
    const int64_t length = std::min<int64_t>(end - begin, 255);
    uint8_t sum = 0;
    for (int64_t i = 0; i < length; ++i) {
      const char c = begin[i];
      const char before = begin[i - 1];
      const uint8_t ends = (c == '\n') | (c == '\r');
      const uint8_t is_empty = (before == '\n') | (before == '\r');
      sum += ends & (is_empty ^ 1);
    }
    count += sum;
    begin += length;
  }
  return count;
}

// Returns the first `c` in [begin, end), or `end`.
const char* Find(const char* begin, const char* end, char c) {
  const void* const found = std::memchr(begin, c, end - begin);
  return found == nullptr ? end : static_cast<const char*>(found);
}

}  // namespace

TextIndex::TextIndex(int64_t block_bytes, char delimiter, char quote)
    : block_bytes_(block_bytes), delimiter_(delimiter), quote_(quote) {}

const char* TextIndex::SkipByteOrderMark(const char* begin) {
  const char* p = begin;
  while (maybe_mark_ && p < chunk_end_) {
    const int64_t offset = OffsetOf(p);
    if (offset == kMarkBytes || *p != kByteOrderMark[offset]) {
      maybe_mark_ = false;
    } else {
      ++p;
      // An incomplete byte order mark is part of the text.
      state_ = offset + 1 < kMarkBytes ? State::kInField : State::kLineStart;
    }
  }
  return p;
}

void TextIndex::Add(const char* begin, const char* end) {
  if (begin == end) return;
  chunk_ = begin;
  chunk_end_ = end;
  const char* p = SkipByteOrderMark(begin);
  if (cuts_after_cr_) {
    cuts_after_cr_ = false;
    if (*p == '\n') line_begin_ = OffsetOf(++p);
    EndBlock(OffsetOf(p));
  }
  while (p < end) {
    if (state_ == State::kInQuotes) {
      p = Find(p, end, quote_);
      if (p == end) break;
      ++p;
      state_ = State::kAfterQuote;
    } else if (state_ == State::kAfterQuote) {
      state_ = *p == quote_       ? State::kInQuotes
               : *p == delimiter_ ? State::kFieldStart
                                  : State::kInField;
      p += state_ != State::kInField;
    } else if (quote_ == kNoQuote) {
      ScanUnquoted(p, end);
      break;
    } else if (*p != quote_) {
      const char* const quote = Find(p, end, quote_);
      ScanUnquoted(p, quote);
      p = quote;
    } else {
      if (state_ != State::kInField) state_ = State::kInQuotes;
      ++p;
    }
  }
  size_ += end - begin;
}

void TextIndex::ScanUnquoted(const char* begin, const char* end) {
  const char* p = begin;
  while (p < end) {
    // A line end in the next `early` bytes would leave the block too short.
    const int64_t block_size = OffsetOf(p) - offsets_.back();
    const int64_t early =
        std::clamp<int64_t>(block_bytes_ - 1 - block_size, 0, end - p);
    CountRecords(p, p + early);
    p += early;
    const char* const line_end = std::find_if(p, end, IsLineEnd);
    const bool is_found = line_end < end;
    CountRecords(p, line_end + is_found);
    if (!is_found) return;
    p = line_end + 1;
    if (*line_end == '\r') {
      cuts_after_cr_ = p == chunk_end_;
      if (cuts_after_cr_) return;
      if (p < end && *p == '\n') line_begin_ = OffsetOf(++p);
    }
    EndBlock(OffsetOf(p));
  }
}

void TextIndex::CountRecords(const char* begin, const char* end) {
  if (begin == end) return;
  if (IsLineEnd(*begin) && state_ != State::kLineStart) ++block_records_;
  block_records_ += CountLineEnds(begin + 1, end);
  const char* line = end;
  while (line > begin && !IsLineEnd(line[-1])) --line;
  if (line > begin) line_begin_ = OffsetOf(line);
  const char last = end[-1];
  state_ = IsLineEnd(last)      ? State::kLineStart
           : last == delimiter_ ? State::kFieldStart
                                : State::kInField;
}

void TextIndex::EndBlock(int64_t offset) {
  offsets_.push_back(offset);
  records_.push_back(block_records_);
  earlier_records_ += block_records_;
  block_records_ = 0;
}

Status TextIndex::Finish() {
  if (state_ == State::kInQuotes) {
    return InvalidArgument("record ", earlier_records_ + block_records_,
                           " at byte ", line_begin_,
                           ": the quote is not closed");
  }
  if (state_ != State::kLineStart) ++block_records_;
  if (offsets_.back() < size_) EndBlock(size_);
  return Status();
}

}  // namespace lodestar
