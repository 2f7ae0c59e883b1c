#include "tf_ops/core/records/multislot_format.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

#include "tf_ops/core/base/text_number.h"
#include "tf_ops/core/base/value_limit.h"
#include "tf_ops/core/records/line_cutter.h"

namespace lodestar {
namespace {

// A line without its newline, which is at `end`. Parsing of blanks and numbers
// stops at the newline, so it needs no end pointer.
struct Line {
  const char* begin;
  const char* end;
  const char* limit;  // end of the readable bytes, behind the newline
  bool wants_message;
};

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

bool EndsToken(char c) { return IsBlank(c) || c == '\n'; }

const char* SkipBlanks(const char* p) {
  while (IsBlank(*p)) ++p;
  return p;
}

const char* TokenEnd(const char* p) {
  while (!EndsToken(*p)) ++p;
  return p;
}

// Returns the token at `p` in quotes, printable and of bounded length.
std::string Quoted(const char* p) {
  constexpr int64_t kMaxShown = 32;
  static const char kHex[] = "0123456789abcdef";
  const char* const token_end = TokenEnd(p);
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

std::string Where(const ColumnSpec& spec, const Line& line, const char* p) {
  return StrCat("slot '", spec.name, "' at byte ", p - line.begin + 1, ": ");
}

// The error if the caller does not want a message.
Status ErrorWithoutMessage() {
  return Status(StatusCode::kInvalidArgument, "");
}

// Returns the error of an invalid count at `p`.
Status BadCount(const ColumnSpec& spec, const Line& line, const char* p) {
  if (!line.wants_message) return ErrorWithoutMessage();
  const std::string where = Where(spec, line, p);
  if (p == line.end) {
    return InvalidArgument(where, "the line ends before its count");
  }
  const char* q = p;
  uint64_t ignored;
  const bool negative =
      *p == '-' && ReadUint64(&q, line.limit, &ignored) == NumberError::kNone &&
      EndsToken(*q);
  return InvalidArgument(
      where, "count is ", Quoted(p),
      negative ? ", expected 0 or more" : ", expected an integer");
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

// Returns the digits of a whole number.
std::string WholeText(double value) {
  char text[64];
  return {text, static_cast<size_t>(
                    std::snprintf(text, sizeof(text), "%.0f", value))};
}

// Returns the error of the invalid value `i` of `count` at `token`.
template <typename T>
Status BadValue(const ColumnSpec& spec, const Line& line, const char* token,
                uint64_t i, uint64_t count) {
  if (!line.wants_message) return ErrorWithoutMessage();
  const std::string where = Where(spec, line, token);
  if (token == line.end) {
    return InvalidArgument(where, "the line ends after ", i, " of ", count,
                           " values");
  }
  constexpr bool kIsFloat = std::is_same<T, float>::value;
  T value = 0;
  const char* p = token;
  const NumberError error = ReadValue(&p, line.limit, &value);
  std::string wanted = StrCat(", expected ", WantedByLimit(spec.limit));
  if (error == NumberError::kNotANumber || !EndsToken(*p)) {
    wanted = kIsFloat ? ", expected a number" : ", expected an integer";
  } else if (error == NumberError::kOutOfRange) {
    wanted = StrCat(", out of the range of ", kIsFloat ? "float" : "uint64");
  } else if (error == NumberError::kInexact) {
    wanted = StrCat(", which float32 does not hold: the nearest is ",
                    WholeText(value),
                    ". Store ids and dates as integers or smaller numbers");
  }
  return InvalidArgument(where, "value ", i + 1, " of ", count, " is ",
                         Quoted(token), wanted);
}

// Appends `count` values from `p`. Returns their end, or sets *status and
// returns null.
template <typename T>
const char* ReadValues(const ColumnSpec& spec, const Line& line, const char* p,
                       uint64_t count, std::vector<T>* values, Status* status) {
  for (uint64_t i = 0; i < count; ++i) {
    p = SkipBlanks(p);
    const char* const token = p;
    T value = 0;
    if (ReadValue(&p, line.limit, &value) != NumberError::kNone ||
        !EndsToken(*p) || (spec.limit > 0 && !WithinLimit(value, spec.limit))) {
      *status = BadValue<T>(spec, line, token, i, count);
      return nullptr;
    }
    // Not reserved up front, because the count may be wrong.
    values->push_back(value);
  }
  return p;
}

// Appends the values of one slot from `p`. Returns their end, or sets *status
// and returns null.
const char* ParseSlot(const ColumnSpec& spec, const Line& line, const char* p,
                      SlotColumn* column, uint64_t* count, Status* status) {
  p = SkipBlanks(p);
  const char* const token = p;
  if (*p >= '0' && *p <= '9' && p[1] == ' ') {
    *count = *p++ - '0';
  } else if (*p < '0' || *p > '9' ||
             ReadUint64(&p, line.limit, count) != NumberError::kNone ||
             !EndsToken(*p)) {
    *status = BadCount(spec, line, token);
    return nullptr;
  }
  if (spec.size >= 0 && *count != static_cast<uint64_t>(spec.size)) {
    *status = line.wants_message
                  ? InvalidArgument(Where(spec, line, token), "count is ",
                                    *count, ", expected ", spec.size)
                  : ErrorWithoutMessage();
    return nullptr;
  }
  return spec.is_float
             ? ReadValues(spec, line, p, *count, &column->floats, status)
             : ReadValues(spec, line, p, *count, &column->ints, status);
}

// Finds the string of the field `name` at *position. Sets *text to its start
// and *position to its end.
Status ReadField(const char* name, const char* begin, const char** position,
                 const char* end, const char** text) {
  const char* p = SkipBlanks(*position);
  const auto where = [&] {
    return StrCat("field '", name, "' at byte ", p - begin + 1, ": ");
  };
  if (p == end || *p != '1' || TokenEnd(p) != p + 1) {
    return InvalidArgument(where(), "count is ", Quoted(p), ", expected 1");
  }
  p = SkipBlanks(p + 1);
  if (p == end) {
    return InvalidArgument(where(), "the line ends before its string");
  }
  *text = p;
  *position = TokenEnd(p);
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

std::string MultiSlotFormat::Describe(int64_t record,
                                      int64_t /*offset*/) const {
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
          "field 'logkey' at byte ", text - begin + 1, ": is ", Quoted(text),
          " of ", *position - text,
          " characters, expected 32 or more, those from 11 to 31 hexadecimal");
    }
    rows->mutable_column(column++)->ints.push_back(static_cast<int64_t>(value));
  }
  return Status();
}

// Parses the line [begin, end), with a newline at `end`. Bytes up to `limit`
// are readable. `lengths` is scratch space, reused to avoid allocations.
Status MultiSlotFormat::ParseLine(const char* begin, const char* end,
                                  const char* limit, bool wants_message,
                                  std::vector<int64_t>* lengths,
                                  SlotRows* rows) const {
  const Line line = {begin, end, limit, wants_message};
  const char* p = begin;
  Status status;
  if (first_slot_ > 0) status = ParseFields(begin, &p, end, rows);
  const int64_t num_slots = static_cast<int64_t>(specs().size());
  // Fields have no length to check.
  lengths->assign(checks_lengths_ ? first_slot_ : 0, 0);
  for (int64_t c = first_slot_; c < num_slots && status.ok(); ++c) {
    const ColumnSpec& spec = specs()[c];
    SlotColumn* column = rows->mutable_column(c);
    uint64_t count = 0;
    p = ParseSlot(spec, line, p, column, &count, &status);
    if (p == nullptr) break;  // an error
    if (spec.used && spec.size < 0) {
      column->row_splits.push_back(column->row_splits.back() +
                                   static_cast<int64_t>(count));
    }
    if (checks_lengths_) lengths->push_back(static_cast<int64_t>(count));
  }
  if (status.ok() && checks_lengths_) status = CheckLengths(specs(), *lengths);
  if (status.ok()) {
    p = SkipBlanks(p);
    if (p == end) {
      rows->AddRows(1);
      return status;
    }
    status = !wants_message ? ErrorWithoutMessage()
                            : InvalidArgument(
                                  "byte ", p - begin + 1, ": found ", Quoted(p),
                                  " after the last slot '", specs().back().name,
                                  "', expected the end of the line");
  }
  rows->TruncateTo(rows->num_rows());
  if (!wants_message) return status;
  const void* nul = begin == end ? nullptr : std::memchr(begin, 0, end - begin);
  if (nul != nullptr) {
    status = InvalidArgument("not a text file: a NUL byte at byte ",
                             static_cast<const char*>(nul) - begin + 1, " (",
                             status.message(), ")");
  }
  return status;
}

Status MultiSlotFormat::Parse(int64_t /*variant*/, const char* begin,
                              const char* end, SlotRows* rows,
                              BadRecord* bad) const {
  std::vector<int64_t> lengths;
  int64_t number = 0;
  for (const char* line = begin; line < end; ++number) {
    const void* newline = std::memchr(line, '\n', end - line);
    const char* next = end;
    Status status;
    if (newline != nullptr) {
      const char* const line_end = static_cast<const char*>(newline);
      next = line_end + 1;
      status =
          ParseLine(line, line_end, end, bad->wants_message, &lengths, rows);
    } else {
      const std::string whole = std::string(line, end) + '\n';
      const char* const whole_end = whole.data() + whole.size();
      status = ParseLine(whole.data(), whole_end - 1, whole_end, true, &lengths,
                         rows);
      if (status.ok()) {
        rows->TruncateTo(rows->num_rows() - 1);
        status = InvalidArgument(
            "the last line has no newline at its end, so the file is "
            "truncated");
      }
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
