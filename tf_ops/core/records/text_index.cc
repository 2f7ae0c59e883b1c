#include "tf_ops/core/records/text_index.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lodestar {
namespace {

constexpr char kByteOrderMark[] = "\xef\xbb\xbf";
constexpr int64_t kMarkBytes = 3;

bool IsLineEnd(char c) { return c == '\n' || c == '\r'; }

struct LineEnds {
  int64_t lines = 0;
  int64_t records = 0;  // lines with bytes
};

// Counts the line ends in [begin, end). The byte before `begin` exists. This
// form compiles to vector instructions.
LineEnds CountLineEnds(const char* begin, const char* end) {
  LineEnds count;
  while (begin < end) {
    // The largest sum that fits a byte.
    const int64_t length = std::min<int64_t>(end - begin, 255);
    uint8_t lines = 0;
    uint8_t records = 0;
    for (int64_t i = 0; i < length; ++i) {
      const char c = begin[i];
      const char before = begin[i - 1];
      const uint8_t is_lf = c == '\n';
      const uint8_t is_cr = c == '\r';
      const uint8_t after_lf = before == '\n';
      const uint8_t after_cr = before == '\r';
      lines += is_cr | (is_lf & (after_cr ^ 1));
      records += (is_lf | is_cr) & ((after_lf | after_cr) ^ 1);
    }
    count.lines += lines;
    count.records += records;
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

TextIndex::TextIndex(int64_t block_bytes, const TextLayout& layout)
    : block_bytes_(block_bytes),
      layout_(layout),
      lines_to_skip_(layout.skip_lines),
      is_skipping_(layout.skip_lines > 0) {}

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

const char* TextIndex::SkipLines(const char* begin) {
  const char* p = begin;
  for (; is_skipping_ && p < chunk_end_; last_ = *p++) {
    const bool is_in_crlf = last_ == '\r' && *p == '\n';
    if (lines_to_skip_ == 0 && !is_in_crlf) {
      is_skipping_ = false;
      offsets_[0] = line_begin_ = OffsetOf(p);
      break;
    }
    if (IsLineEnd(*p) && !is_in_crlf) {
      --lines_to_skip_;
      ++num_lines_;
    }
  }
  return p;
}

Status TextIndex::Add(const char* begin, const char* end) {
  if (begin == end) return Status();
  chunk_ = begin;
  chunk_end_ = end;
  next_lf_ = next_cr_ = nullptr;
  const char* p = is_skipping_ ? SkipLines(begin) : SkipByteOrderMark(begin);
  if (is_skipping_) {
    size_ += end - begin;
    return Status();
  }
  maybe_mark_ &= layout_.skip_lines == 0;
  if (cuts_after_cr_) {
    cuts_after_cr_ = false;
    if (*p == '\n') {
      last_ = *p;
      line_begin_ = OffsetOf(++p);
    }
    EndBlock(OffsetOf(p));
  }
  const char quote = layout_.quote;
  while (p < end) {
    if (state_ == State::kInQuotes) {
      const char* const close = Find(p, end, quote);
      ScanQuoted(p, close);
      p = close;
      if (p == end) break;
      last_ = *p++;
      state_ = State::kAfterQuote;
    } else if (state_ == State::kAfterQuote) {
      if (*p == quote) {
        last_ = *p++;
        state_ = State::kInQuotes;
      } else if (*p == layout_.delimiter) {
        last_ = *p++;
        state_ = State::kFieldStart;
      } else if (IsLineEnd(*p)) {
        state_ = State::kInField;
      } else {
        return BadClose(*p);
      }
    } else if (quote == TextLayout::kNoQuote) {
      LODESTAR_RETURN_IF_ERROR(ScanUnquoted(p, end));
      break;
    } else if (*p != quote) {
      const char* const next = Find(p, end, quote);
      LODESTAR_RETURN_IF_ERROR(ScanUnquoted(p, next));
      p = next;
    } else {
      if (state_ != State::kInField) {
        state_ = State::kInQuotes;
        quote_line_ = num_lines_ + 1;
      }
      last_ = *p++;
    }
  }
  if (layout_.num_fields > 0) {
    earlier_delimiters_ =
        state_ == State::kLineStart ? 0 : CountDelimiters(end);
  }
  size_ += end - begin;
  return Status();
}

Status TextIndex::ScanUnquoted(const char* begin, const char* end) {
  if (span_line_ > 0) {
    const char* const line_end = std::find_if(begin, end, IsLineEnd);
    if (line_end < end) {
      LODESTAR_RETURN_IF_ERROR(EndSpan(CountDelimiters(line_end)));
    }
  }
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
    if (!is_found) break;
    p = line_end + 1;
    if (*line_end == '\r') {
      cuts_after_cr_ = p == chunk_end_;
      if (cuts_after_cr_) break;
      if (p < end && *p == '\n') {
        last_ = *p;
        line_begin_ = OffsetOf(++p);
      }
    }
    EndBlock(OffsetOf(p));
  }
  return Status();
}

void TextIndex::CountRecords(const char* begin, const char* end) {
  if (begin == end) return;
  if (IsLineEnd(*begin)) {
    block_records_ += state_ != State::kLineStart;
    num_lines_ += !(*begin == '\n' && last_ == '\r');
  }
  const LineEnds count = CountLineEnds(begin + 1, end);
  block_records_ += count.records;
  num_lines_ += count.lines;
  const char* line = end;
  while (line > begin && !IsLineEnd(line[-1])) --line;
  if (line > begin) line_begin_ = OffsetOf(line);
  last_ = end[-1];
  state_ = IsLineEnd(last_)             ? State::kLineStart
           : last_ == layout_.delimiter ? State::kFieldStart
                                        : State::kInField;
}

void TextIndex::ScanQuoted(const char* begin, const char* end) {
  for (const char* p = begin; p < end; ++p) {
    // Each kind is searched for once, since most quotes hold no line ends.
    if (next_lf_ == nullptr || next_lf_ < p) {
      next_lf_ = Find(p, chunk_end_, '\n');
    }
    if (next_cr_ == nullptr || next_cr_ < p) {
      next_cr_ = Find(p, chunk_end_, '\r');
    }
    const char* const line_end = std::min(next_lf_, next_cr_);
    if (line_end >= end) break;
    if (line_end > p) last_ = line_end[-1];
    p = line_end;
    EndQuotedLine(p);
    last_ = *p;
  }
  if (begin < end) last_ = end[-1];
}

void TextIndex::EndQuotedLine(const char* end) {
  if (span_line_ == 0) {
    span_line_ = quote_line_;
    lines_are_records_ = true;
  }
  num_lines_ += !(*end == '\n' && last_ == '\r');
  // An empty line is not a record.
  if (layout_.num_fields > 0 && OffsetOf(end) > line_begin_) {
    lines_are_records_ &= CountDelimiters(end) + 1 == layout_.num_fields;
  }
  line_begin_ = OffsetOf(end + 1);
}

int64_t TextIndex::CountDelimiters(const char* end) const {
  if (line_begin_ >= size_) {
    return std::count(chunk_ + (line_begin_ - size_), end, layout_.delimiter);
  }
  return earlier_delimiters_ + std::count(chunk_, end, layout_.delimiter);
}

Status TextIndex::EndSpan(int64_t num_delimiters) {
  const int64_t first = std::exchange(span_line_, 0);
  if (!lines_are_records_ || num_delimiters + 1 != layout_.num_fields) {
    return Status();
  }
  return InvalidArgument(
      "line ", first, ": a quoted field goes on to line ", num_lines_ + 1,
      ", but each of these lines is a row of ", layout_.num_fields,
      " fields if quotes are ordinary characters. Pass `quote=\"\"` if they "
      "are, or `quote='",
      layout_.quote, "'` if the field spans lines");
}

Status TextIndex::BadClose(char next) const {
  const bool is_printable = next > ' ' && next <= '~';
  const int64_t line = num_lines_ + 1;
  return InvalidArgument(
      "line ", line, ": a quoted field ",
      quote_line_ == line ? "" : StrCat("from line ", quote_line_, " "),
      "ends before ",
      is_printable
          ? StrCat("'", next, "'")
          : StrCat("the byte ", static_cast<int>(static_cast<uint8_t>(next))),
      ", expected the delimiter or a line end. Double a quote inside quotes, "
      "or pass `quote=\"\"` if quotes are ordinary characters");
}

void TextIndex::EndBlock(int64_t offset) {
  offsets_.push_back(offset);
  records_.push_back(block_records_);
  block_records_ = 0;
}

Status TextIndex::Finish() {
  if (is_skipping_) offsets_[0] = size_;
  if (state_ == State::kInQuotes) {
    return InvalidArgument("line ", quote_line_,
                           ": the quote of a field is not closed. Pass "
                           "`quote=\"\"` if quotes are ordinary characters");
  }
  if (span_line_ > 0) LODESTAR_RETURN_IF_ERROR(EndSpan(earlier_delimiters_));
  if (state_ != State::kLineStart) ++block_records_;
  if (offsets_.back() < size_) EndBlock(size_);
  return Status();
}

}  // namespace lodestar
