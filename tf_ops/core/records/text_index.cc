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
  for (; p < chunk_end_; ++p) {
    const bool is_in_crlf = skips_lf_ && *p == '\n';
    if (lines_to_skip_ == 0 && !is_in_crlf) {
      is_skipping_ = false;
      offsets_[0] = line_begin_ = OffsetOf(p);
      break;
    }
    if (IsLineEnd(*p) && !is_in_crlf) --lines_to_skip_;
    skips_lf_ = *p == '\r';
  }
  return p;
}

bool TextIndex::Add(const char* begin, const char* end) {
  if (begin == end) return true;
  chunk_ = begin;
  chunk_end_ = end;
  next_line_end_ = next_lf_ = next_cr_ = begin;
  FindLineEnd(begin);
  const char* p = is_skipping_ ? SkipLines(begin) : begin;
  if (layout_.skip_lines == 0) p = SkipByteOrderMark(p);
  if (cuts_after_cr_) {
    cuts_after_cr_ = false;
    if (*p == '\n') line_begin_ = OffsetOf(++p);
    EndBlock(OffsetOf(p));
  }
  const char quote = layout_.quote;
  while (p < end) {
    if (state_ == State::kInQuotes) {
      const char* const close = Find(p, end, quote);
      if (next_line_end_ < close) ScanQuoted(p, close);
      p = close;
      if (p == end) break;
      ++p;
      state_ = State::kAfterQuote;
    } else if (state_ == State::kAfterQuote) {
      if (*p == quote || *p == layout_.delimiter) {
        state_ = *p == quote ? State::kInQuotes : State::kFieldStart;
        ++p;
      } else if (IsLineEnd(*p)) {
        state_ = State::kInField;
      } else {
        fault_ = Fault::kTextAfterQuote;
        fault_at_ = OffsetOf(p);
        fault_byte_ = *p;
        return false;
      }
    } else if (quote == TextLayout::kNoQuote) {
      ScanUnquoted(p, end);
      break;
    } else if (*p != quote) {
      const char* const next = Find(p, end, quote);
      if (span_ >= 0) {
        const char* const line_end = std::find_if(p, next, IsLineEnd);
        if (line_end < next && !EndSpan(line_end)) return false;
      }
      ScanUnquoted(p, next);
      p = next;
    } else {
      if (state_ != State::kInField) {
        state_ = State::kInQuotes;
        quote_ = OffsetOf(p);
      }
      ++p;
    }
  }
  if (quote != TextLayout::kNoQuote) {
    earlier_delimiters_ = CountDelimiters(end);
  }
  size_ += end - begin;
  return true;
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
  state_ = IsLineEnd(last)             ? State::kLineStart
           : last == layout_.delimiter ? State::kFieldStart
                                       : State::kInField;
}

void TextIndex::FindLineEnd(const char* begin) {
  // Few files have both kinds, so that one of them is searched for once.
  if (next_lf_ <= begin) next_lf_ = Find(begin, chunk_end_, '\n');
  if (next_cr_ <= begin) next_cr_ = Find(begin, chunk_end_, '\r');
  next_line_end_ = std::min(next_lf_, next_cr_);
}

void TextIndex::ScanQuoted(const char* begin, const char* end) {
  if (next_line_end_ < begin) FindLineEnd(begin);
  while (next_line_end_ < end) {
    if (span_ < 0) {
      span_ = quote_;
      lines_are_records_ = true;
    }
    // An empty line is not a record.
    if (OffsetOf(next_line_end_) > line_begin_) {
      lines_are_records_ &=
          CountDelimiters(next_line_end_) + 1 == layout_.num_fields;
    }
    line_begin_ = OffsetOf(next_line_end_ + 1);
    FindLineEnd(next_line_end_ + 1);
  }
}

int64_t TextIndex::CountDelimiters(const char* end) const {
  if (line_begin_ >= size_) {
    return std::count(chunk_ + (line_begin_ - size_), end, layout_.delimiter);
  }
  return earlier_delimiters_ + std::count(chunk_, end, layout_.delimiter);
}

bool TextIndex::EndSpan(const char* end) {
  lines_are_records_ &= CountDelimiters(end) + 1 == layout_.num_fields;
  if (lines_are_records_) {
    fault_ = Fault::kTwoReadings;
    fault_at_ = OffsetOf(end);
    return false;
  }
  span_ = -1;
  return true;
}

void TextIndex::EndBlock(int64_t offset) {
  offsets_.push_back(offset);
  records_.push_back(block_records_);
  block_records_ = 0;
}

bool TextIndex::Finish() {
  chunk_ = chunk_end_ = nullptr;
  if (is_skipping_) offsets_[0] = size_;
  if (state_ == State::kInQuotes) {
    fault_ = Fault::kNotClosed;
    fault_at_ = quote_;
    return false;
  }
  if (span_ >= 0 && !EndSpan(nullptr)) return false;
  if (state_ != State::kLineStart) ++block_records_;
  if (offsets_.back() < size_) EndBlock(size_);
  return true;
}

Status TextIndex::Explain(const LineOf& line_of) const {
  int64_t first = 0;
  int64_t last = 0;
  const bool is_span = fault_ == Fault::kTwoReadings;
  LODESTAR_RETURN_IF_ERROR(line_of(is_span ? span_ : quote_, &first));
  LODESTAR_RETURN_IF_ERROR(line_of(fault_at_, &last));
  switch (fault_) {
    case Fault::kNone:
      break;
    case Fault::kNotClosed:
      return InvalidArgument("line ", first,
                             ": the quote of a field is not closed. Pass "
                             "`quote=\"\"` if quotes are ordinary characters");
    case Fault::kTextAfterQuote:
      return InvalidArgument(
          "line ", last, ": a quoted field ",
          first == last ? "" : StrCat("from line ", first, " "), "ends before ",
          fault_byte_ > ' ' && fault_byte_ <= '~'
              ? StrCat("'", fault_byte_, "'")
              : StrCat("the byte ", int{static_cast<uint8_t>(fault_byte_)}),
          ", expected the delimiter or a line end. Double a quote inside "
          "quotes, "
          "or pass `quote=\"\"` if quotes are ordinary characters");
    case Fault::kTwoReadings:
      return InvalidArgument(
          "line ", first, ": a quoted field goes on to line ", last,
          ", but each of these lines is a row of ", layout_.num_fields,
          " fields if quotes are ordinary characters. Pass `quote=\"\"` if "
          "they "
          "are, or `quote='",
          layout_.quote, "'` if the field spans lines");
  }
  return Status();
}

}  // namespace lodestar
