#include "tf_ops/core/embedding/shared_rows.h"

#include "tf_ops/core/rows/row_type.h"

namespace lodestar {
namespace {

// Gives shared rows other initial values than the table's own rows.
constexpr int64_t kSaltOfShared = 0x5368617265643a29;

Status CheckNumbers(const char* name, const NumbersView& numbers,
                    int64_t wanted, RowType type) {
  if (numbers.empty()) return Status();
  LODESTAR_RETURN_IF_ERROR(CheckSize(name, numbers.size(), wanted));
  return CheckType(name, numbers, type);
}

}  // namespace

SharedRows::SharedRows(int64_t count, const RowInitializer& initializer,
                       ShardedRows* rows, OptimizerBinding* optimizer)
    : count_(count),
      initializer_(initializer),
      rows_(*rows),
      optimizer_(*optimizer) {
  initializer_.SetSeed(initializer.seed(), initializer.salt() ^ kSaltOfShared);
}

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

Status SharedRows::CheckNumber(int64_t id, int64_t i) const {
  if (id >= 0 && id < count_) return Status();
  return InvalidArgument("`ids[", i, "]` must be a shared row in [0, ", count_,
                         "), got ", id, ".");
}

void SharedRows::Fill(uint32_t row) {
  rows_.DrawInto(initializer_, row, rows(), row);
  optimizer_.FillSlots(rows(), row);
}

void SharedRows::Export(EmbeddingRows* out) const {
  const int64_t num_slots = out->optimizer.slot_inits.size();
  out->shared_values.Resize(rows_.type(), count_ * rows_.dim());
  out->shared_slots.Resize(ComputeType(rows_.type()),
                           num_slots * count_ * rows_.dim());
  for (int64_t r = 0; r < count_; ++r) {
    rows_.CopyOut(*rows_.shared(), static_cast<uint32_t>(r), r, r, count_,
                  num_slots, &out->shared_values, &out->shared_slots);
  }
}

Status SharedRows::Check(const EmbeddingRowsView& rows) const {
  // A table without shared rows ignores them.
  if (!any()) return Status();
  const int64_t wanted = count_ * rows_.dim();
  const int64_t num_slots = rows.optimizer.slot_inits.size();
  LODESTAR_RETURN_IF_ERROR(
      CheckNumbers("shared_rows", rows.shared_values, wanted, rows_.type()));
  return CheckNumbers("shared_slots", rows.shared_slots, num_slots * wanted,
                      ComputeType(rows_.type()));
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

}  // namespace lodestar
