#include "tf_ops/core/base/json.h"

#include <charconv>

namespace lodestar {
namespace {

constexpr int kMaxDepth = 200;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

void AppendUtf8(uint32_t code, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((code >> shift) & 0x3f)));
  };
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xc0 | (code >> 6)));
    tail(0);
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xe0 | (code >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xf0 | (code >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace

Status JsonReader::Error(std::string_view wanted) const {
  if (at_ >= text_.size()) {
    return InvalidArgument("the text ends at byte ", at_, ", expected ",
                           wanted);
  }
  return InvalidArgument("byte ", at_, " is '", text_.substr(at_, 1),
                         "', expected ", wanted);
}

bool JsonReader::Take(char c) {
  if (at_ >= text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

bool JsonReader::TakeAfterSpace(char c) {
  SkipSpace();
  return Take(c);
}

bool JsonReader::TakeWord(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

void JsonReader::SkipSpace() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' ||
                                text_[at_] == '\n' || text_[at_] == '\r')) {
    ++at_;
  }
}

JsonReader::Kind JsonReader::Peek() {
  SkipSpace();
  switch (Next()) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kArray;
    case '"':
      return Kind::kString;
    case 't':
    case 'f':
      return Kind::kBool;
    case 'n':
      return Kind::kNull;
    default:
      return Kind::kNumber;
  }
}

Status JsonReader::ReadNull() {
  SkipSpace();
  return TakeWord("null") ? Status() : Error("a value");
}

Status JsonReader::ReadBool(bool* value) {
  SkipSpace();
  *value = TakeWord("true");
  return *value || TakeWord("false") ? Status() : Error("a value");
}

Status JsonReader::ReadString(std::string* value) {
  value->clear();
  return TakeAfterSpace('"') ? ReadCharacters(value) : Error("a string");
}

Status JsonReader::ReadNumber(int64_t* value, bool* is_integer) {
  SkipSpace();
  const size_t begin = at_;
  Take('-');
  if (!Take('0')) LODESTAR_RETURN_IF_ERROR(ReadDigits("a value"));
  if (Take('.')) LODESTAR_RETURN_IF_ERROR(ReadDigits("a digit"));
  if (Take('e') || Take('E')) {
    if (!Take('+')) Take('-');
    LODESTAR_RETURN_IF_ERROR(ReadDigits("a digit"));
  }
  const char* const end = text_.data() + at_;
  int64_t number = 0;
  const std::from_chars_result read =
      std::from_chars(text_.data() + begin, end, number);
  *is_integer = read.ec == std::errc() && read.ptr == end;
  if (*is_integer) *value = number;
  return Status();
}

Status JsonReader::Skip() {
  const auto skip = [this] { return Skip(); };
  switch (Peek()) {
    case Kind::kObject:
      return ReadObject([&](const std::string&) { return skip(); });
    case Kind::kArray:
      return ReadArray(skip);
    case Kind::kString:
      Take('"');
      return ReadCharacters(nullptr);
    case Kind::kBool: {
      bool value = false;
      return ReadBool(&value);
    }
    case Kind::kNull:
      return ReadNull();
    default: {
      int64_t value = 0;
      bool is_integer = false;
      return ReadNumber(&value, &is_integer);
    }
  }
}

Status JsonReader::End() {
  SkipSpace();
  return at_ == text_.size() ? Status() : Error("the end");
}

Status JsonReader::Open(char c, std::string_view wanted) {
  if (!TakeAfterSpace(c)) return Error(wanted);
  return ++depth_ > kMaxDepth ? Error("at most 200 nested values") : Status();
}

Status JsonReader::ReadName(std::string* name) {
  name->clear();
  if (!TakeAfterSpace('"')) return Error("a name in quotes");
  LODESTAR_RETURN_IF_ERROR(ReadCharacters(name));
  return TakeAfterSpace(':') ? Status() : Error("':'");
}

Status JsonReader::Continue(char close, std::string_view wanted, bool* more) {
  *more = !TakeAfterSpace(close);
  return !*more || Take(',') ? Status() : Error(wanted);
}

Status JsonReader::ReadCharacters(std::string* out) {
  while (true) {
    if (at_ >= text_.size()) return Error("the end of a string");
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) < 0x20) {
      return Error("no control character in a string");
    }
    ++at_;
    if (c == '"') return Status();
    if (c == '\\') {
      LODESTAR_RETURN_IF_ERROR(ReadEscape(out));
    } else if (out != nullptr) {
      out->push_back(c);
    }
  }
}

Status JsonReader::ReadEscape(std::string* out) {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kCharacters = "\"\\/\b\f\n\r\t";
  if (Take('u')) {
    uint32_t code = 0;
    LODESTAR_RETURN_IF_ERROR(ReadHex(&code));
    // A pair of surrogates is one character. A single one is kept, as Python
    // does.
    const size_t after = at_;
    if (code >= 0xd800 && code < 0xdc00 && TakeWord("\\u")) {
      uint32_t low = 0;
      LODESTAR_RETURN_IF_ERROR(ReadHex(&low));
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      } else {
        at_ = after;
      }
    }
    if (out != nullptr) AppendUtf8(code, out);
    return Status();
  }
  const size_t known =
      at_ < text_.size() ? kNames.find(text_[at_]) : std::string_view::npos;
  if (known == std::string_view::npos) return Error("an escaped character");
  if (out != nullptr) out->push_back(kCharacters[known]);
  ++at_;
  return Status();
}

Status JsonReader::ReadHex(uint32_t* code) {
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = Next();
    uint32_t digit = 0;
    if (IsDigit(c)) {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else {
      return Error("a hexadecimal digit");
    }
    *code = *code << 4 | digit;
  }
  return Status();
}

Status JsonReader::ReadDigits(std::string_view wanted) {
  if (!IsDigit(Next())) return Error(wanted);
  while (IsDigit(Next())) ++at_;
  return Status();
}

}  // namespace lodestar
