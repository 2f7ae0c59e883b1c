// SlotRows: parsed samples, one growing column per feature slot.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_SLOT_ROWS_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_SLOT_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// What a record holds for one feature slot.
struct ColumnSpec {
  std::string name;
  bool is_float = false;
  // Values in every record; -1: any number, 0 included.
  int64_t size = -1;
  // > 0: every value must be a whole number in [0, limit). 2 is a 0/1 label.
  int64_t limit = 0;
  // Where size is -1: the number of values must be a multiple of this.
  int64_t multiple = 1;
  // >= 0: the column of ids that these values are weights of, one an id.
  int64_t weighs = -1;
  // False: the values are checked, then dropped.
  bool used = true;
  // A string a record, and size is -1: its bytes count as values.
  bool is_text = false;
};

struct SlotColumn {
  std::vector<int64_t> ints;        // used unless is_float or is_text
  std::vector<float> floats;        // used if is_float
  std::string text;                 // used if is_text
  std::vector<int64_t> row_splits;  // [rows + 1] from 0; used if size is -1
};

// Invariant: every column that is used holds exactly num_rows samples. While a
// record is parsed its values stand behind those, until AddRow() or
// TruncateTo().
class SlotRows {
 public:
  SlotRows() = default;
  explicit SlotRows(const std::vector<ColumnSpec>& specs);

  int64_t num_rows() const { return num_rows_; }
  const std::vector<SlotColumn>& columns() const { return columns_; }
  // For parsers, which append the values, and the row_splits where there are
  // any, of the next samples.
  SlotColumn* mutable_column(int64_t c) { return &columns_[c]; }
  void AddRows(int64_t count) { num_rows_ += count; }
  // Makes room for `times` of what the columns hold, within reason.
  void Reserve(int64_t times);
  // Drops every sample from `num_rows` on, whole or not.
  void TruncateTo(int64_t num_rows);

  // Values of row `row` in column `c`, which is used.
  int64_t Length(int64_t c, int64_t row) const {
    return ValueOffset(c, row + 1) - ValueOffset(c, row);
  }
  // Where row `row` of column `c` begins among its values.
  int64_t ValueOffset(int64_t c, int64_t row) const {
    return sizes_[c] < 0 ? columns_[c].row_splits[row] : row * sizes_[c];
  }
  // Of the heap.
  int64_t Bytes() const;

  // The first column whose vectors are not what `specs` and num_rows(), which
  // may be any number, say, for rows that come from outside; -1 if there is
  // none.
  int64_t FindUnfit(const std::vector<ColumnSpec>& specs) const;

  // Copies rows [begin, begin + count) of `from`, whose slots are the same.
  void Append(const SlotRows& from, int64_t begin, int64_t count);
  // As Append(), but only column `c`; AddRows() is to follow.
  void AppendColumn(int64_t c, const SlotRows& from, int64_t begin,
                    int64_t count);

 private:
  std::vector<int64_t> sizes_;  // 0 where the column is not used
  std::vector<SlotColumn> columns_;
  int64_t num_rows_ = 0;
};

// Checks what `specs` say about two columns of one sample, its number of values
// by column in `lengths`: kInvalidArgument naming the feature slots.
Status CheckLengths(const std::vector<ColumnSpec>& specs,
                    const std::vector<int64_t>& lengths);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_SLOT_ROWS_H_
