#include "tf_ops/core/multislot_format.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tf_ops/core/line_cutter.h"
#include "tf_ops/core/text_number.h"
#include "tf_ops/core/value_limit.h"

namespace lodestar {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

const char* SkipBlanks(const char* p, const char* end) {
  while (p < end && IsBlank(*p)) ++p;
  return p;
}

const char* TokenEnd(const char* p, const char* end) {
  while (p < end && !IsBlank(*p)) ++p;
  return p;
}

// The token at `p` in quotes, printable and of bounded length.
std::string Quoted(const char* p, const char* end) {
  constexpr int64_t kMaxShown = 32;
  static const char kHex[] = "0123456789abcdef";
  const char* const token_end = TokenEnd(p, end);
  const char* const shown_end = std::min(token_end, p + kMaxShown);
  std::string text = "'";
  for (; p < shown_end; ++p) {
    const unsigned char c = *p;
    if (c >= 0x20 && c < 0x7f) {
      text += *p;
    } else {
      text += "\\x";
      text += kHex[c >> 4];
      text += kHex[c & 15];
    }
  }
  return text + (shown_end < token_end ? "'..." : "'");
}

std::string Where(const ColumnSpec& spec, const char* begin, const char* p) {
  return StrCat("slot '", spec.name, "' at byte ", p - begin + 1, ": ");
}

// Names what is wrong with the count at `p`.
Status BadCount(const ColumnSpec& spec, const char* begin, const char* p,
                const char* end) {
  if (p == end) {
    return InvalidArgument(Where(spec, begin, p),
                           "the line ends where its count should be");
  }
  const char* q = p;
  uint64_t ignored;
  if (*p == '-' && ReadUint64(&q, end, &ignored) == NumberError::kNone &&
      (q == end || IsBlank(*q))) {
    return InvalidArgument(Where(spec, begin, p), "count is ", Quoted(p, end),
                           ", wanted 0 or more");
  }
  return InvalidArgument(Where(spec, begin, p), "count is ", Quoted(p, end),
                         ", wanted a whole number");
}

NumberError ReadValue(const char** p, const char* end, int64_t* value) {
  uint64_t bits = 0;
  const NumberError error = ReadUint64(p, end, &bits);
  std::memcpy(value, &bits, sizeof(bits));
  return error;
}

NumberError ReadValue(const char** p, const char* end, float* value) {
  return ReadFloat(p, end, value);
}

// Appends `count` values from *position; moves it past them.
template <typename T>
Status ReadValues(const ColumnSpec& spec, const char* begin,
                  const char** position, const char* end, uint64_t count,
                  std::vector<T>* values) {
  const char* p = *position;
  for (uint64_t i = 0; i < count; ++i) {
    p = SkipBlanks(p, end);
    if (p == end) {
      return InvalidArgument(Where(spec, begin, p), "the line ends after ", i,
                             " of ", count, " values");
    }
    const char* const token = p;
    T value = 0;
    const NumberError error = ReadValue(&p, end, &value);
    if (error == NumberError::kNotANumber || (p < end && !IsBlank(*p))) {
      return InvalidArgument(
          Where(spec, begin, token), "value ", i + 1, " of ", count, " is ",
          Quoted(token, end), ", wanted ",
          std::is_same<T, float>::value ? "a number" : "an integer");
    }
    if (error == NumberError::kOutOfRange) {
      return InvalidArgument(
          Where(spec, begin, token), "value ", i + 1, " of ", count, " is ",
          Quoted(token, end), ", out of the range of ",
          std::is_same<T, float>::value ? "float" : "uint64");
    }
    if (spec.limit > 0 && !WithinLimit(value, spec.limit)) {
      return InvalidArgument(Where(spec, begin, token), "value ", i + 1, " of ",
                             count, " is ", Quoted(token, end), ", wanted ",
                             WantedByLimit(spec.limit));
    }
    // Not reserved by the count, which may lie.
    values->push_back(value);
  }
  *position = p;
  return Status();
}

// Appends the values of one slot from *position; moves it past them.
Status ParseSlot(const ColumnSpec& spec, const char* begin,
                 const char** position, const char* end, SlotColumn* column,
                 uint64_t* count) {
  const char* p = SkipBlanks(*position, end);
  const char* const token = p;
  if (end - p > 1 && *p >= '0' && *p <= '9' && p[1] == ' ') {
    *count = *p++ - '0';
  } else if (p == end || *p < '0' || *p > '9' ||
             ReadUint64(&p, end, count) != NumberError::kNone ||
             (p < end && !IsBlank(*p))) {
    return BadCount(spec, begin, token, end);
  }
  if (spec.size >= 0 && *count != static_cast<uint64_t>(spec.size)) {
    return InvalidArgument(Where(spec, begin, token), "count is ", *count,
                           ", wanted ", spec.size);
  }
  LODESTAR_RETURN_IF_ERROR(
      spec.is_float ? ReadValues(spec, begin, &p, end, *count, &column->floats)
                    : ReadValues(spec, begin, &p, end, *count, &column->ints));
  *position = p;
  return Status();
}

// Finds the string of the field called `name` at *position: [*text, *position)
// once that has moved past it.
Status ReadField(const char* name, const char* begin, const char** position,
                 const char* end, const char** text) {
  const char* p = SkipBlanks(*position, end);
  const auto where = [&] {
    return StrCat("field '", name, "' at byte ", p - begin + 1, ": ");
  };
  if (p == end || *p != '1' || TokenEnd(p, end) != p + 1) {
    return InvalidArgument(where(), "count is ", Quoted(p, end), ", wanted 1");
  }
  p = SkipBlanks(p + 1, end);
  if (p == end) {
    return InvalidArgument(where(), "the line ends where its string should be");
  }
  *text = p;
  *position = TokenEnd(p, end);
  return Status();
}

bool ReadHex(const char* p, int64_t digits, uint64_t* value) {
  *value = 0;
  for (int64_t i = 0; i < digits; ++i) {
    const char lower = p[i] | 0x20;
    if (p[i] >= '0' && p[i] <= '9') {
      *value = 16 * *value + (p[i] - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      *value = 16 * *value + (lower - 'a' + 10);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<ColumnSpec> FieldColumns(const LineFields& fields) {
  std::vector<ColumnSpec> specs;
  const auto add = [&specs](const char* name, bool is_text) {
    ColumnSpec spec;
    spec.name = name;
    spec.is_text = is_text;
    spec.size = is_text ? -1 : 1;
    specs.push_back(std::move(spec));
  };
  if (fields.ins_id) add("ins_id", true);
  if (fields.content) add("content", true);
  if (fields.logkey) {
    for (const char* name : {"search_id", "cmatch", "rank"}) add(name, false);
  }
  return specs;
}

MultiSlotFormat::MultiSlotFormat(std::vector<ColumnSpec> specs,
                                 LineFields fields)
    : RecordFormat(std::move(specs)),
      fields_(fields),
      first_slot_(static_cast<int64_t>(FieldColumns(fields).size())) {
  for (const ColumnSpec& spec : this->specs()) {
    checks_lengths_ |= spec.multiple > 1 || spec.weighs >= 0;
  }
}

std::unique_ptr<RecordCutter> MultiSlotFormat::NewCutter() const {
  return std::make_unique<LineCutter>();
}

std::string MultiSlotFormat::Place(int64_t record, int64_t /*offset*/) const {
  return StrCat(":", record + 1);
}

Status MultiSlotFormat::ParseFields(const char* begin, const char** position,
                                    const char* end, SlotRows* rows) const {
  int64_t column = 0;
  const char* text = nullptr;
  for (const bool is_there : {fields_.ins_id, fields_.content}) {
    if (!is_there) continue;
    LODESTAR_RETURN_IF_ERROR(
        ReadField(specs()[column].name.c_str(), begin, position, end, &text));
    SlotColumn* to = rows->mutable_column(column++);
    to->text.append(text, *position);
    to->row_splits.push_back(static_cast<int64_t>(to->text.size()));
  }
  if (!fields_.logkey) return Status();
  LODESTAR_RETURN_IF_ERROR(ReadField("logkey", begin, position, end, &text));
  struct Part {
    int64_t begin;
    int64_t digits;
  };
  for (const Part part : {Part{16, 16}, Part{11, 3}, Part{14, 2}}) {
    uint64_t value = 0;
    if (*position - text < 32 ||
        !ReadHex(text + part.begin, part.digits, &value)) {
      return InvalidArgument(
          "field 'logkey' at byte ", text - begin + 1, ": is ",
          Quoted(text, end), " of ", *position - text,
          " characters, wanted 32 or more, those from 11 to 31 hexadecimal");
    }
    rows->mutable_column(column++)->ints.push_back(static_cast<int64_t>(value));
  }
  return Status();
}

// `unused` and `lengths` are only lent, so that they are not made anew for each
// line.
Status MultiSlotFormat::ParseLine(const char* begin, const char* end,
                                  SlotColumn* unused,
                                  std::vector<int64_t>* lengths,
                                  SlotRows* rows) const {
  const char* p = begin;
  Status status = ParseFields(begin, &p, end, rows);
  const int64_t num_slots = static_cast<int64_t>(specs().size());
  // A field is as long as it is.
  lengths->assign(checks_lengths_ ? first_slot_ : 0, 0);
  for (int64_t c = first_slot_; c < num_slots && status.ok(); ++c) {
    const ColumnSpec& spec = specs()[c];
    SlotColumn* column = spec.used ? rows->mutable_column(c) : unused;
    uint64_t count = 0;
    status = ParseSlot(spec, begin, &p, end, column, &count);
    if (!status.ok()) break;
    if (!spec.used) {
      unused->ints.clear();
      unused->floats.clear();
    } else if (spec.size < 0) {
      column->row_splits.push_back(column->row_splits.back() +
                                   static_cast<int64_t>(count));
    }
    if (checks_lengths_) lengths->push_back(static_cast<int64_t>(count));
  }
  if (status.ok() && checks_lengths_) status = CheckLengths(specs(), *lengths);
  if (status.ok()) {
    p = SkipBlanks(p, end);
    if (p == end) {
      rows->AddRows(1);
      return status;
    }
    status = InvalidArgument("byte ", p - begin + 1, ": found ", Quoted(p, end),
                             " after the last slot '", specs().back().name,
                             "', wanted the end of the line");
  }
  rows->TruncateTo(rows->num_rows());
  const void* nul = begin == end ? nullptr : std::memchr(begin, 0, end - begin);
  if (nul != nullptr) {
    status = InvalidArgument("not text: a NUL byte at byte ",
                             static_cast<const char*>(nul) - begin + 1, " (",
                             status.message(), ")");
  }
  return status;
}

Status MultiSlotFormat::Parse(int64_t /*variant*/, const char* begin,
                              const char* end, SlotRows* rows,
                              BadRecord* bad) const {
  SlotColumn unused;
  std::vector<int64_t> lengths;
  int64_t number = 0;
  for (const char* line = begin; line < end; ++number) {
    const void* newline = std::memchr(line, '\n', end - line);
    const char* const line_end =
        newline == nullptr ? end : static_cast<const char*>(newline);
    const char* const next = newline == nullptr ? end : line_end + 1;
    Status status = ParseLine(line, line_end, &unused, &lengths, rows);
    if (status.ok() && newline == nullptr) {
      rows->TruncateTo(rows->num_rows() - 1);
      status = InvalidArgument(
          "the last line has no newline at its end, so the file was cut short");
    }
    if (!status.ok()) {
      *bad = {number, line - begin, next - begin};
      return status;
    }
    line = next;
  }
  return Status();
}

}  // namespace lodestar
