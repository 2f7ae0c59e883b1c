// One line of a vocabulary file: where its key and its id are.

#ifndef LODESTAR_TF_OPS_CORE_LOOKUP_VOCABULARY_LINE_H_
#define LODESTAR_TF_OPS_CORE_LOOKUP_VOCABULARY_LINE_H_

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// A column counts from 0, or is one of these two.
constexpr int64_t kLineNumber = -1;  // from 0
constexpr int64_t kWholeLine = -2;

struct VocabularyFormat {
  int64_t key_column = kWholeLine;
  int64_t value_column = kLineNumber;
  char delimiter = '\t';
  int64_t vocab_size = -1;  // lines to read; -1: all
};

// The line without its end, "\n" or "\r\n".
inline std::string_view WithoutLineEnd(std::string_view line) {
  for (char end : {'\n', '\r'}) {
    if (!line.empty() && line.back() == end) line.remove_suffix(1);
  }
  return line;
}

// The text of the key or the value of a line that is not empty, or nothing for
// kLineNumber. InvalidArgument: the line has too few columns.
Status ColumnOf(std::string_view line, int64_t column, char delimiter,
                std::string_view* text);

// Reads all of `text`, blanks around it and a plus sign allowed.
// InvalidArgument: no integer, or none that T holds.
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
  return InvalidArgument("'", text, "' is no ", type);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_LOOKUP_VOCABULARY_LINE_H_
