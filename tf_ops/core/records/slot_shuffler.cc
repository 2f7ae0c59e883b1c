#include "tf_ops/core/records/slot_shuffler.h"

#include <utility>

#include "tf_ops/core/base/hash.h"

namespace lodestar {

void SlotShuffler::Add(std::shared_ptr<const SlotRows> rows) {
  const int64_t count = rows->num_rows();
  if (count == 0) return;
  int64_t block = static_cast<int64_t>(blocks_.size());
  if (free_blocks_.empty()) {
    blocks_.push_back({std::move(rows), count});
  } else {
    block = free_blocks_.back();
    free_blocks_.pop_back();
    blocks_[block] = {std::move(rows), count};
  }
  for (int64_t row = 0; row < count; ++row) order_.push_back({block, row});
}

void SlotShuffler::Draw(SlotBatch* out) {
  state_ += kGoldenGamma;
  const uint64_t word = Mix64(state_) >> 32;
  // The window is far below 2^32 rows, so the product keeps its high part.
  const int64_t pick = static_cast<int64_t>((word * order_.size()) >> 32);
  const Position position = order_[pick];
  order_[pick] = order_.back();
  order_.pop_back();
  Block& block = blocks_[position.block];
  out->Add(block.rows, position.row, 1);
  if (--block.left == 0) {
    block.rows.reset();
    free_blocks_.push_back(position.block);
  }
}

SlotRows SlotShuffler::Window(const std::vector<ColumnSpec>& specs) const {
  SlotRows rows(specs);
  for (const Position& position : order_) {
    rows.Append(*blocks_[position.block].rows, position.row, 1);
  }
  return rows;
}

}  // namespace lodestar
