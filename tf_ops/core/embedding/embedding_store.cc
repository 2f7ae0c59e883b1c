#include "tf_ops/core/embedding/embedding_store.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/embedding/embedding_run.h"

namespace lodestar {
namespace {

constexpr int64_t kMostSharedRows = int64_t{1} << 30;

Status CheckPolicies(const TablePolicies& policies) {
  const AdmissionPolicy& admission = policies.admission;
  const EvictionPolicy& eviction = policies.eviction;
  const bool sketch = admission.kind == AdmissionPolicy::Kind::kCountingBloom;
  const int64_t most = sketch ? CountingSketch::kMaxCount : 0xffffffffLL;
  if (admission.min_count < 1 || admission.min_count > most) {
    return InvalidArgument("`min_count` is ", admission.min_count,
                           ", wanted 1 to ", most);
  }
  if (sketch && (admission.num_counters < 1 ||
                 admission.num_counters > (int64_t{1} << 40))) {
    return InvalidArgument("`num_counters` is ", admission.num_counters,
                           ", wanted 1 to 2^40");
  }
  if (sketch && (admission.num_hashes < 1 || admission.num_hashes > 64)) {
    return InvalidArgument("`num_hashes` is ", admission.num_hashes,
                           ", wanted 1 to 64");
  }
  if (eviction.max_rows < 0) {
    return InvalidArgument("`max_rows` is ", eviction.max_rows,
                           ", wanted at least 0");
  }
  if (policies.shared_rows < 0 || policies.shared_rows > kMostSharedRows) {
    return InvalidArgument("`shared_rows` is ", policies.shared_rows,
                           ", wanted 0 to 2^30");
  }
  return Status();
}

}  // namespace

EmbeddingStore::ShardLocks::ShardLocks(const EmbeddingStore& store)
    : ShardLocks(store, std::defer_lock) {
  Lock();
}

EmbeddingStore::ShardLocks::ShardLocks(const EmbeddingStore& store,
                                       std::defer_lock_t defer) {
  locks_.reserve(store.shards_.size());
  for (const auto& shard : store.shards_) {
    locks_.emplace_back(shard->mutex, defer);
  }
}

void EmbeddingStore::ShardLocks::Lock() {
  for (auto& lock : locks_) lock.lock();
}

void EmbeddingStore::ShardLocks::Unlock() {
  for (auto& lock : locks_) lock.unlock();
}

EmbeddingStore::ShardLocks::ShardLocks(const EmbeddingStore& store,
                                       const std::vector<int64_t>& counts) {
  locks_.reserve(counts.size());
  for (size_t s = 0; s < counts.size(); ++s) {
    if (counts[s] > 0) locks_.emplace_back(store.shards_[s]->mutex);
  }
}

Status EmbeddingStore::Create(int64_t dim, int64_t num_shards,
                              const RowInitializer& initializer,
                              std::unique_ptr<EmbeddingStore>* out,
                              const TablePolicies& policies, RowType type) try {
  if (dim < 1 || dim > kMaxDim) {
    return InvalidArgument("`dim` is ", dim, ", wanted 1 to ", kMaxDim);
  }
  if (num_shards < 1 || num_shards > 4096) {
    return InvalidArgument("`num_shards` is ", num_shards,
                           ", wanted 1 to 4096");
  }
  LODESTAR_RETURN_IF_ERROR(CheckPolicies(policies));
  std::unique_ptr<EmbeddingStore> store(
      new EmbeddingStore(static_cast<int>(dim), static_cast<int>(num_shards),
                         initializer, policies, type));
  LODESTAR_RETURN_IF_ERROR(store->MakeSharedRows());
  *out = std::move(store);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for a table of ", num_shards,
                           " shards");
}

Status EmbeddingStore::CreateEmptyLike(const EmbeddingStore& like, int64_t seed,
                                       int64_t salt,
                                       std::unique_ptr<EmbeddingStore>* out) {
  RowInitializer initializer;
  {
    // An import sets the seed under it.
    std::lock_guard<std::mutex> lock(like.shards_[0]->mutex);
    initializer = like.initializer_;
  }
  initializer.SetSeed(seed, salt);
  return Create(like.dim_, static_cast<int64_t>(like.shards_.size()),
                initializer, out, like.policies_, like.type_);
}

EmbeddingStore::EmbeddingStore(int dim, int num_shards,
                               const RowInitializer& initializer,
                               const TablePolicies& policies, RowType type)
    : dim_(dim),
      type_(type),
      row_bytes_(dim * SizeOf(type)),
      slot_bytes_(dim * SizeOf(ComputeType(type))),
      policies_(policies),
      initializer_(initializer) {
  const AdmissionPolicy& admission = policies_.admission;
  const EvictionPolicy& eviction = policies_.eviction;
  if (admission.kind == AdmissionPolicy::Kind::kCountingBloom) {
    sketch_ = std::make_unique<CountingSketch>(
        admission.num_counters, static_cast<int>(admission.num_hashes));
  }
  for (int s = 0; s < num_shards; ++s) {
    auto shard = std::make_unique<Shard>(dim, type, s, &arena_, &epochs_);
    if (eviction.max_rows > 0 || eviction.max_age >= 0) {
      shard->order = std::make_unique<EvictionList>(
          eviction.max_rows > 0 ? eviction.order : EvictionPolicy::Order::kLru,
          &shard->rows, &arena_);
    }
    if (UsesAdmission()) {
      shard->pending = std::make_unique<PendingIds>(&epochs_);
    }
    shards_.push_back(std::move(shard));
  }
}

void EmbeddingStore::FillSlots(const RowRef& ref) const {
  const RowStore& rows = shards_[ref.shard]->rows;
  for (size_t s = 0; s < optimizer_.slot_inits.size(); ++s) {
    rows.FillSlot(ref.row, static_cast<int>(s), optimizer_.slot_inits[s]);
  }
}

void EmbeddingStore::FillNewRow(int64_t id, const RowRef& ref) const {
  const RowStore& rows = shards_[ref.shard]->rows;
  double row[kMaxDim];  // of the widest type
  DrawRow(id, row);
  CopyRowIn(row, row_bytes_, rows.values(ref.row));
  FillSlots(ref);
}

Status EmbeddingStore::InsertOrAssign(Span<const int64_t> ids, const void* rows,
                                      const ParallelFor* parallel) try {
  ImageBudget::Global().Wait();
  std::vector<int64_t> unique;
  std::vector<int64_t> positions(ids.size());
  BatchUnique(ids, nullptr, &unique, positions);
  std::vector<const char*> values(unique.size());
  for (int64_t i = 0; i < ids.size(); ++i) {
    values[positions[i]] = static_cast<const char*>(rows) + i * row_bytes_;
  }
  std::vector<RowRef> refs(unique.size());
  FindAll(unique, refs, parallel);
  std::vector<int64_t> missing;
  for (size_t i = 0; i < unique.size(); ++i) {
    if (!refs[i].found()) missing.push_back(i);
  }
  std::vector<char> inserted(unique.size(), 0);
  InsertOptions options;
  options.now = step();
  LODESTAR_RETURN_IF_ERROR(
      InsertMissing(unique, missing, options, refs, parallel,
                    [&](int64_t i, const RowRef& ref) {
                      CopyRowIn(values[i], row_bytes_,
                                shards_[ref.shard]->rows.values(ref.row));
                      FillSlots(ref);
                      inserted[i] = 1;
                    }));
  RunParallel(parallel, unique.size(), RowCost(dim_),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  // New, or refused.
                  if (inserted[i] || !refs[i].found()) continue;
                  const RowStore& store = shards_[refs[i].shard]->rows;
                  EpochDomain::Guard guard(&epochs_);
                  // Not there any more: removed after this call, in effect.
                  if (!store.Lock(refs[i].row, unique[i]) &&
                      !LockAgain(unique[i], &refs[i])) {
                    continue;
                  }
                  store.BeforeWrite(refs[i].row);
                  CopyRowIn(values[i], row_bytes_, store.values(refs[i].row));
                  store.Unlock(refs[i].row);
                }
              });
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for ", ids.size(), " rows to assign");
}

Status EmbeddingStore::Remove(Span<const int64_t> ids, int64_t* removed) try {
  *removed = 0;
  ImageBudget::Global().Wait();
  std::vector<int64_t> counts(shards_.size(), 0);
  for (int64_t id : ids) ++counts[PlaceOf(id).shard];
  ShardLocks locks(*this, counts);
  for (int64_t id : ids) {
    const Place place = PlaceOf(id);
    Shard& shard = *shards_[place.shard];
    const uint32_t row = FindRow(shard, place.tag, id);
    if (row == LeafIndex::kNoRow) continue;
    RemoveRow(&shard, place.tag, row);
    ++*removed;
  }
  size_.fetch_sub(*removed, std::memory_order_relaxed);
  removed_.fetch_add(*removed, std::memory_order_relaxed);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while ", ids.size(),
                           " rows are removed");
}

void EmbeddingStore::FreeAllRows() {
  ForgetBase();
  for (const auto& shard : shards_) {
    LeafIndex empty(&epochs_);
    shard->rows.FreeAll();
    shard->index.Replace(&empty);
    if (shard->order != nullptr) shard->order->Clear();
  }
  removed_.fetch_add(size_.exchange(0), std::memory_order_relaxed);
}

Status EmbeddingStore::RemoveAll() try {
  ShardLocks locks(*this);
  if (!changes_.running()) {
    FreeAllRows();
    return Status();
  }
  // The images of all rows are no second table here: there are as many rows as
  // the steps since the last call of this have written.
  int64_t removed = 0;
  for (const auto& shard : shards_) {
    for (uint32_t row = 0; row < shard->rows.high_water(); ++row) {
      if (!shard->rows.resident(row)) continue;
      const int64_t id =
          shard->rows.meta(row)->id.load(std::memory_order_relaxed);
      RemoveRow(shard.get(), PlaceOf(id).tag, row);
      ++removed;
    }
  }
  size_.fetch_sub(removed, std::memory_order_relaxed);
  removed_.fetch_add(removed, std::memory_order_relaxed);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while all rows are removed");
}

Status EmbeddingStore::Clear() try {
  ShardLocks locks(*this, std::defer_lock);
  LockBetweenSnapshots(&locks);
  FreeAllRows();
  for (const auto& shard : shards_) {
    if (shard->pending != nullptr) shard->pending->Clear();
  }
  if (sketch_ != nullptr) {
    std::lock_guard<std::mutex> lock(sketch_mutex_);
    sketch_->Clear();
  }
  ResetShared();
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while the table is cleared");
}

void EmbeddingStore::RemoveRow(Shard* shard, uint32_t tag, uint32_t row) {
  if (shard->order != nullptr) shard->order->Remove(row);
  shard->index.Remove(tag, row);
  FreeRow(shard, row);
}

void EmbeddingStore::FreeRow(Shard* shard, uint32_t row) {
  if (shard->rows.marking()) {
    const int64_t id =
        shard->rows.meta(row)->id.load(std::memory_order_relaxed);
    if (!shard->removed.Add(id, shard->rows.live())) changes_.ForgetBase();
  }
  shard->rows.Free(row);
}

void EmbeddingStore::SetStep(int64_t step) {
  own_step_.store(true, std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
}

}  // namespace lodestar
