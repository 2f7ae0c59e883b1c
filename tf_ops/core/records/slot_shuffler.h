// SlotShuffler: shuffles a stream of samples within a window.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_SLOT_SHUFFLER_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_SLOT_SHUFFLER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tf_ops/core/records/slot_batch.h"
#include "tf_ops/core/records/slot_rows.h"

namespace lodestar {

// Draws a random row of the window; the next row that is read replaces it.
class SlotShuffler {
 public:
  // The first row is drawn once the window holds `window` rows.
  SlotShuffler(int64_t window, uint64_t seed) : window_(window), state_(seed) {}

  bool WantsMore() const { return Size() < window_; }
  int64_t Size() const { return static_cast<int64_t>(order_.size()); }
  void Add(std::shared_ptr<const SlotRows> rows);
  // Moves one row to the end of `out`. Requires: Size() > 0.
  void Draw(SlotBatch* out);

  // The state that later draws depend on. A shuffler that gets both by
  // Restore() draws the same rows.
  uint64_t state() const { return state_; }
  // Copies the rows that are left to draw, in the order that draws depend on.
  SlotRows CopyRowsLeft(const std::vector<ColumnSpec>& specs) const;
  // Requires: no rows were added.
  void Restore(uint64_t state, SlotRows window) {
    state_ = state;
    Add(std::make_shared<const SlotRows>(std::move(window)));
  }

 private:
  struct Position {
    int64_t chunk;
    int64_t row;
  };
  struct Chunk {
    std::shared_ptr<const SlotRows> rows;
    int64_t left;
  };

  const int64_t window_;
  uint64_t state_;
  std::vector<Position> order_;
  std::vector<Chunk> chunks_;
  std::vector<int64_t> free_chunks_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_SLOT_SHUFFLER_H_
