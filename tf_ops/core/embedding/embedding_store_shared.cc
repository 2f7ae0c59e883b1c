// The shared rows of an EmbeddingStore: a bag of buckets for ids without a row.

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

// Sets their first values apart from those of the table's own rows.
constexpr int64_t kSaltOfShared = 0x5368617265643a29;

Status CheckNumbers(const char* name, const NumbersView& numbers,
                    int64_t wanted, RowType type) {
  if (numbers.empty()) return Status();
  if (numbers.size() != wanted) {
    return InvalidArgument("`", name, "` has ", numbers.size(),
                           " numbers, wanted ", wanted);
  }
  return CheckType(name, numbers, type);
}

}  // namespace

Status EmbeddingStore::MakeSharedRows() {
  if (policies_.shared_rows == 0) return Status();
  RowInitializer initializer = initializer_;
  initializer.SetSeed(initializer_.seed(), initializer_.salt() ^ kSaltOfShared);
  LODESTAR_RETURN_IF_ERROR(
      Create(dim_, 1, initializer, &shared_, TablePolicies(), type_));
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
  {
    std::lock_guard<std::mutex> optimizer_lock(optimizer_mutex_);
    // An import, under the shard's lock too, may have brought another one.
    if (optimizer_.name != optimizer.name ||
        optimizer_.slot_names != optimizer.slot_names) {
      return;
    }
    // The table's own: an export and a snapshot have told of them already. As
    // many numbers, so that this needs no memory.
    optimizer.slot_inits = optimizer_.slot_inits;
  }
  shared_->Attach(std::move(optimizer));
}

EmbeddingStore::ColdIds EmbeddingStore::ReadersOfSharedRows(
    Span<const int64_t> ids) const {
  ColdIds cold;
  if (shared_ == nullptr) return cold;
  std::vector<RowRef> refs(ids.size());
  FindAll(ids, refs, nullptr);
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (!refs[i].found()) cold.push_back({SharedRowOf(ids[i]), i});
  }
  std::sort(cold.begin(), cold.end());
  return cold;
}

template <typename C>
size_t EmbeddingStore::SumShared(const ColdIds& cold, size_t first,
                                 const C* gradients, C* sum) const {
  std::fill_n(sum, dim_, C{0});
  size_t i = first;
  for (; i < cold.size() && cold[i].first == cold[first].first; ++i) {
    const C* gradient = gradients + cold[i].second * dim_;
    for (int c = 0; c < dim_; ++c) sum[c] += gradient[c];
  }
  return i;
}

template size_t EmbeddingStore::SumShared(const ColdIds&, size_t, const float*,
                                          float*) const;
template size_t EmbeddingStore::SumShared(const ColdIds&, size_t, const double*,
                                          double*) const;

void EmbeddingStore::ExportShared(EmbeddingRows* out) const {
  if (shared_ == nullptr) return;
  const ShardLocks locks(*shared_);
  const RowStore& rows = shared_rows();
  const int64_t count = policies_.shared_rows;
  const std::vector<float>& inits = out->optimizer.slot_inits;
  const int64_t num_slots = static_cast<int64_t>(inits.size());
  out->shared_values.Resize(type_, count * dim_);
  out->shared_slots.Resize(ComputeType(type_), num_slots * count * dim_);
  for (int64_t r = 0; r < count; ++r) {
    const uint32_t row = static_cast<uint32_t>(r);
    rows.Lock(row, r);
    CopyRowOut(rows.values(row), row_bytes_, out->shared_values.at(r * dim_));
    for (int64_t s = 0; s < num_slots; ++s) {
      char* slot = out->shared_slots.at((s * count + r) * dim_);
      if (shared_->attached_) {
        std::memcpy(slot, rows.slot(row, static_cast<int>(s)), slot_bytes_);
      } else {
        FillComputed(type_, inits[s], dim_, slot);
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
      CheckNumbers("shared_rows", rows.shared_values, wanted, type_));
  return CheckNumbers("shared_slots", rows.shared_slots, num_slots * wanted,
                      ComputeType(type_));
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
      CopyRowIn(rows.shared_values.at(r * dim_), row_bytes_, store.values(row));
    }
    for (int64_t s = 0; !rows.shared_slots.empty() && s < num_slots; ++s) {
      std::memcpy(store.slot(row, static_cast<int>(s)),
                  rows.shared_slots.at((s * count + r) * dim_), slot_bytes_);
    }
    store.Unlock(row);
  }
}

void EmbeddingStore::ResetShared() {
  if (shared_ == nullptr) return;
  std::lock_guard<std::mutex> lock(shared_->shards_[0]->mutex);
  for (int64_t r = 0; r < policies_.shared_rows; ++r) {
    const uint32_t row = static_cast<uint32_t>(r);
    shared_rows().Lock(row, r);
    shared_->FillNewRow(r, shared_->RefTo(0, row));
    shared_rows().Unlock(row);
  }
}

}  // namespace lodestar
