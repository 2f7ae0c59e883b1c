// The shared rows of an EmbeddingStore: a bag of buckets for ids without a row.

#include <algorithm>
#include <utility>
#include <vector>

#include "tf_ops/core/embedding_run.h"
#include "tf_ops/core/embedding_store.h"

namespace lodestar {
namespace {

// Sets their first values apart from those of the table's own rows.
constexpr int64_t kSaltOfShared = 0x5368617265643a29;

Status CheckShape(const char* name, int64_t found, int64_t wanted) {
  if (found == 0 || found == wanted) return Status();
  return InvalidArgument("`", name, "` has ", found, " numbers, wanted ",
                         wanted);
}

}  // namespace

Status EmbeddingStore::MakeSharedRows() {
  if (policies_.shared_rows == 0) return Status();
  RowInitializer initializer = initializer_;
  initializer.SetSeed(initializer_.seed(), initializer_.salt() ^ kSaltOfShared);
  LODESTAR_RETURN_IF_ERROR(Create(dim_, 1, initializer, &shared_));
  std::vector<int64_t> ids(policies_.shared_rows);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  std::vector<RowRef> refs(ids.size());
  SightingOptions options;
  options.insert = true;
  return shared_->FindOrInsert(ids, options, refs, nullptr);
}

Status EmbeddingStore::ReserveShared(const AttachedOptimizer& optimizer) {
  if (shared_->AttachmentOf(optimizer) != kNoAttachment) return Status();
  std::lock_guard<std::mutex> lock(shared_->shards_[0]->mutex);
  return shared_->ReserveOptimizer(optimizer);
}

void EmbeddingStore::AttachShared(AttachedOptimizer optimizer) {
  if (shared_->AttachmentOf(optimizer) != kNoAttachment) return;
  std::lock_guard<std::mutex> lock(shared_->shards_[0]->mutex);
  if (shared_->AttachmentOf(optimizer) != kNoAttachment) return;
  shared_->Attach(std::move(optimizer));
}

size_t EmbeddingStore::SumShared(const ColdIds& cold, size_t first,
                                 const float* gradients, float* sum) const {
  std::fill_n(sum, dim_, 0.0f);
  size_t i = first;
  for (; i < cold.size() && cold[i].first == cold[first].first; ++i) {
    const float* gradient = gradients + cold[i].second * dim_;
    for (int c = 0; c < dim_; ++c) sum[c] += gradient[c];
  }
  return i;
}

void EmbeddingStore::ApplyShared(ColdIds* cold, const float* gradients,
                                 const SparseOptimizer& optimizer) {
  std::sort(cold->begin(), cold->end());
  const RowStore& rows = shared_rows();
  float sum[kMaxDim];
  float value[kMaxDim];
  for (size_t i = 0; i < cold->size();) {
    const uint32_t row = (*cold)[i].first;
    i = SumShared(*cold, i, gradients, sum);
    rows.Lock(row, row);
    float* slots[RowStore::kMaxSlots];
    for (int s = 0; s < optimizer.num_slots(); ++s)
      slots[s] = rows.slot(row, s);
    CopyRowOut(rows.values(row), dim_, value);
    optimizer.Update(sum, dim_, value, slots);
    CopyRowIn(value, dim_, rows.values(row));
    rows.Unlock(row);
  }
}

void EmbeddingStore::ExportShared(EmbeddingRows* out) const {
  if (shared_ == nullptr) return;
  const ShardLocks locks(*shared_);
  const RowStore& rows = shared_rows();
  const int64_t count = policies_.shared_rows;
  const std::vector<float>& inits = out->optimizer.slot_inits;
  const int64_t num_slots = static_cast<int64_t>(inits.size());
  out->shared_values.resize(count * dim_);
  out->shared_slots.resize(num_slots * count * dim_);
  for (int64_t r = 0; r < count; ++r) {
    const uint32_t row = static_cast<uint32_t>(r);
    rows.Lock(row, r);
    CopyRowOut(rows.values(row), dim_, &out->shared_values[r * dim_]);
    for (int64_t s = 0; s < num_slots; ++s) {
      float* slot = &out->shared_slots[(s * count + r) * dim_];
      if (shared_->attached_) {
        std::copy_n(rows.slot(row, static_cast<int>(s)), dim_, slot);
      } else {
        std::fill_n(slot, dim_, inits[s]);
      }
    }
    rows.UnlockUnchanged(row);
  }
}

Status EmbeddingStore::CheckShared(const EmbeddingRowsView& rows) const {
  // Without shared rows they are left out.
  if (shared_ == nullptr) return Status();
  const int64_t wanted = policies_.shared_rows * dim_;
  const int64_t num_slots = rows.optimizer.slot_inits.size();
  LODESTAR_RETURN_IF_ERROR(
      CheckShape("shared_rows", rows.shared_values.size(), wanted));
  return CheckShape("shared_slots", rows.shared_slots.size(),
                    num_slots * wanted);
}

void EmbeddingStore::ImportShared(const EmbeddingRowsView& rows) {
  if (rows.with_counters) {
    shared_->initializer_.SetSeed(rows.seed, rows.salt ^ kSaltOfShared);
  }
  const RowStore& store = shared_rows();
  const int64_t count = policies_.shared_rows;
  const int64_t num_slots = rows.optimizer.slot_inits.size();
  for (int64_t r = 0; r < count; ++r) {
    const uint32_t row = static_cast<uint32_t>(r);
    store.Lock(row, r);
    if (!rows.shared_values.empty()) {
      CopyRowIn(rows.shared_values.data() + r * dim_, dim_, store.values(row));
    }
    for (int64_t s = 0; !rows.shared_slots.empty() && s < num_slots; ++s) {
      std::copy_n(rows.shared_slots.data() + (s * count + r) * dim_, dim_,
                  store.slot(row, static_cast<int>(s)));
    }
    store.Unlock(row);
  }
}

void EmbeddingStore::ResetShared() {
  if (shared_ == nullptr) return;
  for (int64_t r = 0; r < policies_.shared_rows; ++r) {
    const uint32_t row = static_cast<uint32_t>(r);
    shared_rows().Lock(row, r);
    shared_->FillNewRow(r, shared_->RefTo(0, row));
    shared_rows().Unlock(row);
  }
}

}  // namespace lodestar
