// SlotRows: parsed samples, as one growing column per feature slot.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_SLOT_ROWS_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_SLOT_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// The values of a feature slot in a record.
struct ColumnSpec {
  std::string name;
  bool is_float = false;
  // Number of values in every record; -1: any number, including 0.
  int64_t size = -1;
  // > 0: every value must be an integer in [0, limit). 2 is a 0/1 label.
  int64_t limit = 0;
  // If size is -1: the number of values must be a multiple of this.
  int64_t multiple = 1;
  // >= 0: the column of ids that these values are the weights of, one per id.
  int64_t weighs = -1;
  // If false, the values are checked, then dropped.
  bool used = true;
  // One string per record, with size -1; its bytes count as values.
  bool is_text = false;
};

struct SlotColumn {
  std::vector<int64_t> ints;        // used unless is_float or is_text
  std::vector<float> floats;        // used if is_float
  std::string text;                 // used if is_text
  std::vector<int64_t> row_splits;  // [rows + 1] from 0; used if size is -1
};

// Invariant: every used column holds exactly num_rows samples. While a record
// is being parsed its values follow those, until AddRows() or TruncateTo().
class SlotRows {
 public:
  SlotRows() = default;
  explicit SlotRows(const std::vector<ColumnSpec>& specs);

  int64_t num_rows() const { return num_rows_; }
  const std::vector<SlotColumn>& columns() const { return columns_; }
  // For parsers, which append the values, and the row_splits if any, of the
  // next samples. The values of a column that is not used are dropped.
  SlotColumn* mutable_column(int64_t c) {
    if (sizes_[c] != 0) return &columns_[c];
    unused_.ints.clear();
    unused_.floats.clear();
    return &unused_;
  }
  void AddRows(int64_t count) { num_rows_ += count; }
  // Reserves memory for `times` the current contents, within a limit.
  void Reserve(int64_t times);
  // Drops every sample from `num_rows` on, and any partial one.
  void TruncateTo(int64_t num_rows);

  // Number of values of row `row` in column `c`, which must be used.
  int64_t Length(int64_t c, int64_t row) const {
    return ValueOffset(c, row + 1) - ValueOffset(c, row);
  }
  // Index of the first value of row `row` in column `c`.
  int64_t ValueOffset(int64_t c, int64_t row) const {
    return sizes_[c] < 0 ? columns_[c].row_splits[row] : row * sizes_[c];
  }
  // Bytes on the heap.
  int64_t Bytes() const;

  // Returns the first column that is inconsistent with `specs` and num_rows(),
  // or -1. For rows from untrusted bytes; num_rows() may be any number.
  int64_t FindUnfit(const std::vector<ColumnSpec>& specs) const;

  // Appends rows [begin, begin + count) of `from`, which must have the same
  // slots.
  void Append(const SlotRows& from, int64_t begin, int64_t count);
  // Appends only column `c`. The caller must call AddRows() afterwards.
  void AppendColumn(int64_t c, const SlotRows& from, int64_t begin,
                    int64_t count);

 private:
  std::vector<int64_t> sizes_;  // 0 if the column is not used
  std::vector<SlotColumn> columns_;
  SlotColumn unused_;  // scratch
  int64_t num_rows_ = 0;
};

// Checks the constraints between columns of one sample. `lengths` is its number
// of values by column. Returns kInvalidArgument with the feature slots.
Status CheckLengths(const std::vector<ColumnSpec>& specs,
                    const std::vector<int64_t>& lengths);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_SLOT_ROWS_H_
