#include "tf_ops/core/records/slot_shuffler.h"

#include <utility>

#include "tf_ops/core/base/hash.h"

namespace lodestar {

void SlotShuffler::Add(std::shared_ptr<const SlotRows> rows) {
  const int64_t count = rows->num_rows();
  if (count == 0) return;
  int64_t chunk = static_cast<int64_t>(chunks_.size());
  if (free_chunks_.empty()) {
    chunks_.push_back({std::move(rows), count});
  } else {
    chunk = free_chunks_.back();
    free_chunks_.pop_back();
    chunks_[chunk] = {std::move(rows), count};
  }
  for (int64_t row = 0; row < count; ++row) order_.push_back({chunk, row});
}

void SlotShuffler::Draw(SlotBatch* out) {
  state_ += kGoldenGamma;
  const uint64_t word = Mix64(state_) >> 32;
  // The window is far smaller than 2^32 rows, so the high part of the product
  // is exact enough.
  const int64_t pick = static_cast<int64_t>((word * order_.size()) >> 32);
  const Position position = order_[pick];
  order_[pick] = order_.back();
  order_.pop_back();
  Chunk& chunk = chunks_[position.chunk];
  out->Add(chunk.rows, position.row, 1);
  if (--chunk.left == 0) {
    chunk.rows.reset();
    free_chunks_.push_back(position.chunk);
  }
}

SlotRows SlotShuffler::CopyRowsLeft(
    const std::vector<ColumnSpec>& specs) const {
  SlotRows rows(specs);
  for (const Position& position : order_) {
    rows.Append(*chunks_[position.chunk].rows, position.row, 1);
  }
  return rows;
}

}  // namespace lodestar
