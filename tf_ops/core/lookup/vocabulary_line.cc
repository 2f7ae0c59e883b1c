#include "tf_ops/core/lookup/vocabulary_line.h"

#include <algorithm>

namespace lodestar {

Status ColumnOf(std::string_view line, int64_t column, char delimiter,
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

}  // namespace lodestar
