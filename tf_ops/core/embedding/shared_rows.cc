#include "tf_ops/core/embedding/shared_rows.h"

#include <algorithm>

#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

SharedRows::SharedRows(int64_t count, const RowInitializer& initializer,
                       ShardedRows* rows, OptimizerBinding* optimizer)
    : count_(count),
      initializer_(OfSharedRows(initializer)),
      rows_(*rows),
      optimizer_(*optimizer) {}

Status SharedRows::CreateRows() {
  if (!any()) return Status();
  LODESTAR_RETURN_IF_ERROR(rows()->Reserve(count_));
  for (int64_t r = 0; r < count_; ++r) {
    const uint32_t row = rows()->Allocate();
    Fill(row);
    rows()->Publish(row, r, 0, 0);
  }
  return Status();
}

void SharedRows::CopyValues(const SharedRows& from) {
  for (int64_t r = 0; r < count_; ++r) {
    const uint32_t row = static_cast<uint32_t>(r);
    const RowStore& old = *from.rows_.shared();
    old.Lock(row, r);
    CopyRowIn(old.values(row), rows_.row_bytes(), rows()->values(row));
    old.UnlockUnchanged(row);
  }
}

void SharedRows::Fill(uint32_t row) {
  rows_.DrawInto(initializer_, row, rows(), row);
  optimizer_.FillSlots(rows(), row);
}

void SharedRows::Export(EmbeddingRows* out) const {
  const int64_t num_slots = out->optimizer.slot_inits.size();
  out->shared_values.Resize(rows_.type(), count_ * rows_.dim());
  out->shared_slots.Resize(RowType::kFloat32,
                           out->optimizer.slots().Size(rows_.dim()) * count_);
  for (int64_t r = 0; r < count_; ++r) {
    rows_.CopyOut(*rows_.shared(), static_cast<uint32_t>(r), r, r, count_,
                  num_slots, &out->shared_values, &out->shared_slots);
  }
}

void SharedRows::Import(const EmbeddingRowsView& rows) {
  for (int64_t r = 0; r < count_; ++r) {
    const uint32_t row = static_cast<uint32_t>(r);
    rows_.shared()->Lock(row, r);
    rows_.CopyIn(rows.shared_values, rows.shared_slots, r, count_,
                 rows_.shared(), row);
    rows_.shared()->Unlock(row);
  }
}

void SharedRows::Reset() {
  for (int64_t r = 0; r < count_; ++r) {
    const uint32_t row = static_cast<uint32_t>(r);
    rows()->Lock(row, r);
    Fill(row);
    rows()->Unlock(row);
  }
}

size_t SharedRows::Sum(const Readers& readers, size_t first,
                       const float* gradients, int column, int count,
                       float* sum) const {
  std::fill_n(sum, count, 0.0f);
  size_t i = first;
  for (; i < readers.size() && readers[i].first == readers[first].first; ++i) {
    const float* const gradient =
        gradients + readers[i].second * rows_.dim() + column;
    for (int c = 0; c < count; ++c) sum[c] += gradient[c];
  }
  return i;
}

}  // namespace lodestar
