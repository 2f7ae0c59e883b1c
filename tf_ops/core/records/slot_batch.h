// SlotBatch: the samples of a batch, as references to rows that are copied to
// their destination column by column.

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

  // Adds rows [begin, begin + count) of `rows`, which must not change during
  // the lifetime of the batch. All samples must have the same slots.
  void Add(std::shared_ptr<const SlotRows> rows, int64_t begin, int64_t count) {
    num_rows_ += count;
    if (!runs_.empty() && runs_.back().rows == rows &&
        runs_.back().begin + runs_.back().count == begin) {
      runs_.back().count += count;
    } else if (count > 0) {
      runs_.push_back({std::move(rows), begin, count});
    }
  }

  // The values of a run in a column.
  struct Piece {
    const SlotColumn* column;
    int64_t first;
    int64_t size;
  };

  // Finds the values of all samples in column `c` and returns their number.
  // Unless `splits` is null, sets splits[i] to the first value of sample i and
  // splits[num_rows()] to the end. Requires: the column's size is -1 if
  // `splits` is given.
  int64_t Find(int64_t c, std::vector<Piece>* pieces, int64_t* splits) const {
    int64_t end = 0;
    pieces->resize(runs_.size());
    for (size_t r = 0; r < runs_.size(); ++r) {
      if (splits != nullptr && r + kAhead < runs_.size()) {
        const Run& later = runs_[r + kAhead];
        __builtin_prefetch(&later.rows->columns()[c].row_splits[later.begin]);
      }
      const Run& run = runs_[r];
      const SlotColumn& column = run.rows->columns()[c];
      const int64_t first = run.rows->ValueOffset(c, run.begin);
      const int64_t last = run.rows->ValueOffset(c, run.begin + run.count);
      if (splits != nullptr) {
        const int64_t* const from = column.row_splits.data() + run.begin;
        const int64_t shift = end - first;
        for (int64_t i = 0; i < run.count; ++i) *splits++ = from[i] + shift;
      }
      (*pieces)[r] = {&column, first, last - first};
      end += last - first;
    }
    if (splits != nullptr) *splits = end;
    return end;
  }
  // Copies the values that Find() found to `to`. T is the column's type.
  template <typename T>
  static void Copy(const std::vector<Piece>& pieces, T* to) {
    // A call of memmove costs more than copying up to this many values.
    constexpr int64_t kFew = 8;
    for (size_t r = 0; r < pieces.size(); ++r) {
      if (r + kAhead < pieces.size()) {
        const Piece& later = pieces[r + kAhead];
        __builtin_prefetch(ValuesOf<T>(*later.column) + later.first);
      }
      const Piece& piece = pieces[r];
      const T* const from = ValuesOf<T>(*piece.column) + piece.first;
      if (piece.size <= kFew) {
        for (int64_t i = 0; i < piece.size; ++i) *to++ = from[i];
      } else {
        to = std::copy(from, from + piece.size, to);
      }
    }
  }
  // Appends the samples to `rows`.
  void AppendTo(SlotRows* rows) const {
    for (const Run& run : runs_) rows->Append(*run.rows, run.begin, run.count);
  }

 private:
  struct Run {
    std::shared_ptr<const SlotRows> rows;
    int64_t begin;
    int64_t count;
  };

  // In a shuffled batch each run is one sample, anywhere in memory, so runs
  // this far ahead are prefetched.
  static constexpr size_t kAhead = 16;

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
