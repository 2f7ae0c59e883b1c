#include "tf_ops/core/base/json.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

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

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Status ParseAll(JsonValue* value) {
    LODESTAR_RETURN_IF_ERROR(Parse(value, 0));
    SkipSpace();
    return at_ == text_.size() ? Status() : Error("the end");
  }

 private:
  Status Error(std::string_view wanted) const {
    if (at_ >= text_.size()) {
      return InvalidArgument("the text ends at byte ", at_, ", expected ",
                             wanted);
    }
    return InvalidArgument("byte ", at_, " is '", text_.substr(at_, 1),
                           "', expected ", wanted);
  }

  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' ||
                                  text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  Status Parse(JsonValue* value, int depth) {
    SkipSpace();
    if (depth > kMaxDepth) return Error("at most 200 nested values");
    if (Take('{')) return ParseObject(value, depth);
    if (Take('[')) return ParseArray(value, depth);
    if (Take('"')) {
      value->kind = JsonValue::Kind::kString;
      return ParseString(&value->text);
    }
    if (TakeWord("true") || TakeWord("false")) {
      value->kind = JsonValue::Kind::kBool;
      value->boolean = text_[at_ - 2] == 'u';
      return Status();
    }
    if (TakeWord("null")) return Status();
    value->kind = JsonValue::Kind::kNumber;
    return ParseNumber(&value->text);
  }

  Status ParseObject(JsonValue* value, int depth) {
    value->kind = JsonValue::Kind::kObject;
    SkipSpace();
    if (Take('}')) return Status();
    std::unordered_set<std::string> names;
    while (true) {
      SkipSpace();
      if (!Take('"')) return Error("a name in quotes");
      JsonValue::Member& member = value->members.emplace_back();
      LODESTAR_RETURN_IF_ERROR(ParseString(&member.first));
      if (!names.insert(member.first).second) {
        return InvalidArgument("the name '", member.first,
                               "' occurs a second time before byte ", at_);
      }
      SkipSpace();
      if (!Take(':')) return Error("':'");
      LODESTAR_RETURN_IF_ERROR(Parse(&member.second, depth + 1));
      SkipSpace();
      if (Take('}')) return Status();
      if (!Take(',')) return Error("',' or '}'");
    }
  }

  Status ParseArray(JsonValue* value, int depth) {
    value->kind = JsonValue::Kind::kArray;
    SkipSpace();
    if (Take(']')) return Status();
    while (true) {
      LODESTAR_RETURN_IF_ERROR(Parse(&value->items.emplace_back(), depth + 1));
      SkipSpace();
      if (Take(']')) return Status();
      if (!Take(',')) return Error("',' or ']'");
    }
  }

  Status ParseString(std::string* out) {
    while (true) {
      if (at_ >= text_.size()) return Error("the end of a string");
      const char c = text_[at_];
      if (static_cast<unsigned char>(c) < 0x20) {
        return Error("no control character in a string");
      }
      ++at_;
      if (c == '"') return Status();
      if (c != '\\') {
        out->push_back(c);
        continue;
      }
      LODESTAR_RETURN_IF_ERROR(ParseEscape(out));
    }
  }

  Status ParseEscape(std::string* out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kCharacters = "\"\\/\b\f\n\r\t";
    if (Take('u')) {
      uint32_t code = 0;
      LODESTAR_RETURN_IF_ERROR(ParseHex(&code));
      // A pair of surrogates is one character. A single one is kept, as Python
      // does.
      const size_t after = at_;
      if (code >= 0xd800 && code < 0xdc00 && TakeWord("\\u")) {
        uint32_t low = 0;
        LODESTAR_RETURN_IF_ERROR(ParseHex(&low));
        if (low >= 0xdc00 && low < 0xe000) {
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        } else {
          at_ = after;
        }
      }
      AppendUtf8(code, out);
      return Status();
    }
    const size_t known =
        at_ < text_.size() ? kNames.find(text_[at_]) : std::string_view::npos;
    if (known == std::string_view::npos) return Error("an escaped character");
    out->push_back(kCharacters[known]);
    ++at_;
    return Status();
  }

  Status ParseHex(uint32_t* code) {
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = Peek();
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

  Status ParseNumber(std::string* out) {
    const size_t begin = at_;
    Take('-');
    if (!Take('0')) LODESTAR_RETURN_IF_ERROR(ParseDigits("a value"));
    if (Take('.')) LODESTAR_RETURN_IF_ERROR(ParseDigits("a digit"));
    if (Take('e') || Take('E')) {
      if (!Take('+')) Take('-');
      LODESTAR_RETURN_IF_ERROR(ParseDigits("a digit"));
    }
    out->assign(text_.substr(begin, at_ - begin));
    return Status();
  }

  Status ParseDigits(std::string_view wanted) {
    if (!IsDigit(Peek())) return Error(wanted);
    while (IsDigit(Peek())) ++at_;
    return Status();
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

const JsonValue* JsonValue::Find(std::string_view name) const {
  const auto found =
      std::find_if(members.begin(), members.end(),
                   [&](const Member& member) { return member.first == name; });
  return found == members.end() ? nullptr : &found->second;
}

bool JsonValue::ReadInteger(int64_t* value) const {
  if (kind != Kind::kNumber) return false;
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, *value);
  return read.ec == std::errc() && read.ptr == end;
}

Status ParseJson(std::string_view text, JsonValue* value) {
  *value = JsonValue();
  return Parser(text).ParseAll(value);
}

}  // namespace lodestar
