// SlotBatch: samples of a batch, which stay where they are until they are
// copied to their place, column by column.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_SLOT_BATCH_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_SLOT_BATCH_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tf_ops/core/records/slot_rows.h"

namespace lodestar {

class SlotBatch {
 public:
  int64_t num_rows() const { return num_rows_; }

  // Takes rows [begin, begin + count) of `rows`, which must not change while
  // the batch lives. The slots of all samples are the same.
  void Add(std::shared_ptr<const SlotRows> rows, int64_t begin, int64_t count) {
    num_rows_ += count;
    if (!runs_.empty() && runs_.back().rows == rows &&
        runs_.back().begin + runs_.back().count == begin) {
      runs_.back().count += count;
    } else if (count > 0) {
      runs_.push_back({std::move(rows), begin, count});
    }
  }

  // Values of all samples in column `c`.
  int64_t NumValues(int64_t c) const {
    int64_t num_values = 0;
    for (const Run& run : runs_) num_values += run.End(c) - run.First(c);
    return num_values;
  }
  // Copies them to `to`; T is the column's.
  template <typename T>
  void CopyValues(int64_t c, T* to) const {
    for (const Run& run : runs_) {
      const T* const values = ValuesOf<T>(run.rows->columns()[c]);
      to = std::copy(values + run.First(c), values + run.End(c), to);
    }
  }
  // Sets to[i] to the first value of sample i, to[num_rows()] to the end.
  // REQUIRES: the column's size is -1.
  void CopySplits(int64_t c, int64_t* to) const {
    *to = 0;
    for (const Run& run : runs_) {
      const int64_t* const splits =
          run.rows->columns()[c].row_splits.data() + run.begin;
      const int64_t shift = *to - splits[0];
      for (int64_t i = 1; i <= run.count; ++i) to[i] = splits[i] + shift;
      to += run.count;
    }
  }
  // Copies the samples behind those of `rows`.
  void AppendTo(SlotRows* rows) const {
    for (const Run& run : runs_) rows->Append(*run.rows, run.begin, run.count);
  }

 private:
  struct Run {
    int64_t First(int64_t c) const { return rows->ValueOffset(c, begin); }
    int64_t End(int64_t c) const { return rows->ValueOffset(c, begin + count); }

    std::shared_ptr<const SlotRows> rows;
    int64_t begin;
    int64_t count;
  };

  template <typename T>
  static const T* ValuesOf(const SlotColumn& column);

  std::vector<Run> runs_;
  int64_t num_rows_ = 0;
};

template <>
inline const int64_t* SlotBatch::ValuesOf(const SlotColumn& column) {
  return column.ints.data();
}
template <>
inline const float* SlotBatch::ValuesOf(const SlotColumn& column) {
  return column.floats.data();
}
template <>
inline const char* SlotBatch::ValuesOf(const SlotColumn& column) {
  return column.text.data();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_SLOT_BATCH_H_
