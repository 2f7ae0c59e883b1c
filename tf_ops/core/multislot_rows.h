// MultiSlotRows: parsed samples, one growing column per feature slot.

#ifndef LODESTAR_TF_OPS_CORE_MULTISLOT_ROWS_H_
#define LODESTAR_TF_OPS_CORE_MULTISLOT_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lodestar {

// What a line holds for one feature slot.
struct MultiSlotSpec {
  std::string name;
  bool is_float = false;
  // Values on every line; -1: any number, 0 included.
  int64_t size = -1;
  // > 0: every value must be a whole number in [0, limit). 2 is a 0/1 label.
  int64_t limit = 0;
};

struct MultiSlotColumn {
  std::vector<int64_t> ints;        // used unless is_float
  std::vector<float> floats;        // used if is_float
  std::vector<int64_t> row_splits;  // [rows + 1] from 0; used if size is -1
};

// Invariant: every column holds exactly num_rows samples.
class MultiSlotRows {
 public:
  MultiSlotRows() = default;
  explicit MultiSlotRows(const std::vector<MultiSlotSpec>& specs);

  int64_t num_rows() const { return num_rows_; }
  const std::vector<MultiSlotColumn>& columns() const { return columns_; }

  // Copies rows [begin, begin + count) of `from`, whose slots are the same.
  void Append(const MultiSlotRows& from, int64_t begin, int64_t count);

 private:
  friend class MultiSlotParser;

  // Where row `row` of column `c` begins among its values.
  int64_t ValueOffset(int64_t c, int64_t row) const {
    return sizes_[c] < 0 ? columns_[c].row_splits[row] : row * sizes_[c];
  }
  // Drops what a failed line left behind in columns [0, end).
  void TruncateTo(int64_t num_rows, int64_t end);

  std::vector<int64_t> sizes_;
  std::vector<MultiSlotColumn> columns_;
  int64_t num_rows_ = 0;
};

// Draws rows in random order from a window of the stream: a row leaves at
// random, the next one read takes its place.
class MultiSlotShuffler {
 public:
  // `window` rows are held before the first one leaves.
  MultiSlotShuffler(int64_t window, uint64_t seed)
      : window_(window), state_(seed) {}

  bool WantsMore() const { return Size() < window_; }
  int64_t Size() const { return static_cast<int64_t>(order_.size()); }
  void Add(MultiSlotRows rows);
  // Moves one row to the end of `out`. REQUIRES: Size() > 0.
  void Draw(MultiSlotRows* out);

 private:
  struct Position {
    int64_t block;
    int64_t row;
  };
  struct Block {
    MultiSlotRows rows;
    int64_t left;
  };

  const int64_t window_;
  uint64_t state_;
  std::vector<Position> order_;
  std::vector<Block> blocks_;
  std::vector<int64_t> free_blocks_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_MULTISLOT_ROWS_H_
