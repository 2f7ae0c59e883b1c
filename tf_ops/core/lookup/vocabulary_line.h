// Parses lines of a vocabulary file.

#ifndef LODESTAR_TF_OPS_CORE_LOOKUP_VOCABULARY_LINE_H_
#define LODESTAR_TF_OPS_CORE_LOOKUP_VOCABULARY_LINE_H_

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// A column is a number from 0, or one of these two.
constexpr int64_t kLineNumber = -1;  // from 0
constexpr int64_t kWholeLine = -2;

struct VocabularyFormat {
  int64_t key_column = kWholeLine;
  int64_t value_column = kLineNumber;
  char delimiter = '\t';
  int64_t vocab_size = -1;  // lines to read; -1: all
};

// Strips "\n" or "\r\n".
inline std::string_view WithoutLineEnd(std::string_view line) {
  for (char end : {'\n', '\r'}) {
    if (!line.empty() && line.back() == end) line.remove_suffix(1);
  }
  return line;
}

// Strips a UTF-8 byte order mark from the first line of a file. Returns
// InvalidArgument for that of UTF-16.
inline Status SkipByteOrderMark(std::string_view* line) {
  constexpr std::string_view kUtf8 = "\xef\xbb\xbf";
  if (line->substr(0, 3) == kUtf8) line->remove_prefix(3);
  const std::string_view begin = line->substr(0, 2);
  if (begin == "\xff\xfe" || begin == "\xfe\xff") {
    return InvalidArgument(
        "the file begins with the byte order mark of UTF-16. Convert it to "
        "UTF-8.");
  }
  return Status();
}

// Returns the key or value column of a non-empty line, or an empty string for
// kLineNumber. Returns InvalidArgument if the line has too few columns.
inline Status ColumnOf(std::string_view line, int64_t column, char delimiter,
                       std::string_view* text) {
  *text = line;
  if (column < 0) return Status();
  for (int64_t c = 0; c < column; ++c) {
    const size_t end = text->find(delimiter);
    if (end == text->npos) {
      const int64_t found = std::count(line.begin(), line.end(), delimiter) + 1;
      return InvalidArgument("the line must have at least ", column + 1,
                             " columns, got ", found, ".");
    }
    text->remove_prefix(end + 1);
  }
  *text = text->substr(0, text->find(delimiter));
  return Status();
}

// Parses all of `text`; blanks around the number and a plus sign are allowed.
// Returns InvalidArgument if it is not an integer or does not fit T.
template <typename T>
Status ParseInteger(std::string_view text, const char* type, T* number) {
  constexpr std::string_view kBlanks = " \t\v\f\r";
  std::string_view digits = text;
  while (!digits.empty() && kBlanks.find(digits.front()) != kBlanks.npos) {
    digits.remove_prefix(1);
  }
  while (!digits.empty() && kBlanks.find(digits.back()) != kBlanks.npos) {
    digits.remove_suffix(1);
  }
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') {
    digits.remove_prefix(1);
  }
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, *number);
  if (error == std::errc() && stop == end) return Status();
  return InvalidArgument("'", text, "' is not a valid ", type, ".");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_LOOKUP_VOCABULARY_LINE_H_
