#include "tf_ops/core/records/slot_rows.h"

#include <algorithm>

namespace lodestar {

SlotRows::SlotRows(const std::vector<ColumnSpec>& specs)
    : columns_(specs.size()) {
  sizes_.reserve(specs.size());
  for (size_t c = 0; c < specs.size(); ++c) {
    sizes_.push_back(specs[c].used ? specs[c].size : 0);
    if (sizes_[c] < 0) columns_[c].row_splits.push_back(0);
  }
}

void SlotRows::Append(const SlotRows& from, int64_t begin, int64_t count) {
  for (size_t c = 0; c < columns_.size(); ++c) {
    AppendColumn(c, from, begin, count);
  }
  num_rows_ += count;
}

void SlotRows::AppendColumn(int64_t c, const SlotRows& from, int64_t begin,
                            int64_t count) {
  SlotColumn& to = columns_[c];
  const SlotColumn& column = from.columns_[c];
  const int64_t first = from.ValueOffset(c, begin);
  const int64_t last = from.ValueOffset(c, begin + count);
  // Only one of the three vectors has values.
  if (!column.floats.empty()) {
    to.floats.insert(to.floats.end(), column.floats.begin() + first,
                     column.floats.begin() + last);
  } else if (!column.text.empty()) {
    to.text.append(column.text, first, last - first);
  } else {
    to.ints.insert(to.ints.end(), column.ints.begin() + first,
                   column.ints.begin() + last);
  }
  if (sizes_[c] < 0) {
    const int64_t shift = to.row_splits.back() - first;
    const int64_t* const splits = column.row_splits.data() + begin + 1;
    const size_t size = to.row_splits.size();
    to.row_splits.resize(size + count);
    int64_t* const next = to.row_splits.data() + size;
    for (int64_t row = 0; row < count; ++row) next[row] = splits[row] + shift;
  }
}

int64_t SlotRows::Bytes() const {
  size_t bytes = columns_.capacity() * sizeof(SlotColumn) +
                 sizes_.capacity() * sizeof(int64_t);
  for (const SlotColumn& column : columns_) {
    bytes += column.ints.capacity() * sizeof(int64_t) +
             column.floats.capacity() * sizeof(float) + column.text.capacity() +
             column.row_splits.capacity() * sizeof(int64_t);
  }
  return static_cast<int64_t>(bytes);
}

int64_t SlotRows::FindUnfit(const std::vector<ColumnSpec>& specs) const {
  if (num_rows_ < 0) return 0;
  for (size_t c = 0; c < specs.size(); ++c) {
    const SlotColumn& column = columns_[c];
    int64_t wanted = 0;
    bool fits = column.row_splits.empty() &&
                !__builtin_mul_overflow(num_rows_, sizes_[c], &wanted);
    if (sizes_[c] < 0) {
      const std::vector<int64_t>& splits = column.row_splits;
      fits = !splits.empty() &&
             static_cast<int64_t>(splits.size() - 1) == num_rows_ &&
             splits.front() == 0 &&
             std::is_sorted(splits.begin(), splits.end());
      wanted = fits ? splits.back() : 0;
      for (int64_t row = 0; row < num_rows_ && fits; ++row) {
        fits = (splits[row + 1] - splits[row]) % specs[c].multiple == 0;
      }
    }
    const bool is_float = specs[c].is_float;
    const bool is_text = specs[c].is_text;
    const int64_t ints = static_cast<int64_t>(column.ints.size());
    const int64_t floats = static_cast<int64_t>(column.floats.size());
    const int64_t text = static_cast<int64_t>(column.text.size());
    if (!fits || ints != (is_float || is_text ? 0 : wanted) ||
        floats != (is_float ? wanted : 0) || text != (is_text ? wanted : 0)) {
      return static_cast<int64_t>(c);
    }
  }
  // Only now is it certain that the columns of ids have every row.
  for (size_t c = 0; c < specs.size(); ++c) {
    const int64_t ids = specs[c].weighs;
    if (ids < 0 || !specs[c].used || !specs[ids].used) continue;
    for (int64_t row = 0; row < num_rows_; ++row) {
      if (Length(c, row) != Length(ids, row)) return static_cast<int64_t>(c);
    }
  }
  return -1;
}

void SlotRows::Reserve(int64_t times) {
  // A larger reservation saves little, and would be excessive for long records.
  constexpr size_t kMost = 1 << 22;
  const auto reserve = [&](auto* values) {
    values->reserve(std::min(values->size() * times, kMost));
  };
  for (SlotColumn& column : columns_) {
    reserve(&column.ints);
    reserve(&column.floats);
    reserve(&column.text);
    reserve(&column.row_splits);
  }
}

void SlotRows::TruncateTo(int64_t num_rows) {
  for (size_t c = 0; c < columns_.size(); ++c) {
    SlotColumn& column = columns_[c];
    const int64_t size = ValueOffset(c, num_rows);
    // Only one of the three vectors has values.
    if (static_cast<int64_t>(column.ints.size()) > size) {
      column.ints.resize(size);
    }
    if (static_cast<int64_t>(column.floats.size()) > size) {
      column.floats.resize(size);
    }
    if (static_cast<int64_t>(column.text.size()) > size) {
      column.text.resize(size);
    }
    if (sizes_[c] < 0) column.row_splits.resize(num_rows + 1);
  }
  num_rows_ = num_rows;
}

Status CheckLengths(const std::vector<ColumnSpec>& specs,
                    const std::vector<int64_t>& lengths) {
  for (size_t c = 0; c < specs.size(); ++c) {
    const ColumnSpec& spec = specs[c];
    if (lengths[c] % spec.multiple != 0) {
      return InvalidArgument("slot '", spec.name, "': found ", lengths[c],
                             " values, expected a multiple of ", spec.multiple);
    }
    if (spec.weighs >= 0 && lengths[c] != lengths[spec.weighs]) {
      return InvalidArgument("slot '", spec.name, "': found ", lengths[c],
                             " weights, expected one for each of the ",
                             lengths[spec.weighs], " ids of slot '",
                             specs[spec.weighs].name, "'");
    }
  }
  return Status();
}

}  // namespace lodestar
