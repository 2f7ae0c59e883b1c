#include "tf_ops/core/embedding/sharded_rows.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace lodestar {

uint32_t RowShard::Find(uint32_t tag, int64_t id) const {
  while (true) {
    const uint64_t moved = moves.load(std::memory_order_acquire);
    LeafIndex::Cursor cursor = index.Begin(tag);
    bool any = false;
    uint32_t row;
    while ((row = LeafIndex::Next(tag, &cursor)) != LeafIndex::kNoRow) {
      if (rows.Holds(row, id)) return row;
      any = true;
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!any || moves.load(std::memory_order_relaxed) == moved) return row;
  }
}

bool RowShard::LockAgain(uint32_t tag, int64_t id, RowRef* ref) {
  do {
    ref->row = Find(tag, id);
    if (!ref->found()) return false;
    ref->meta = rows.meta(ref->row);
  } while (!RowStore::Lock(ref->meta, id));
  return true;
}

bool RowShard::ReadAgain(uint32_t tag, int64_t id, void* row) const {
  while (true) {
    const uint32_t again = Find(tag, id);
    if (again == LeafIndex::kNoRow) return false;
    if (rows.Read(again, id, row)) return true;
  }
}

ShardLocks::ShardLocks(const ShardedRows& rows)
    : ShardLocks(rows, std::defer_lock) {
  Lock();
}

ShardLocks::ShardLocks(const ShardedRows& rows, std::defer_lock_t defer) {
  locks_.reserve(rows.num_shards());
  for (size_t s = 0; s < rows.num_shards(); ++s) {
    locks_.emplace_back(rows.shard(s).mutex, defer);
  }
}

ShardLocks::ShardLocks(const ShardedRows& rows,
                       const std::vector<int64_t>& counts) {
  locks_.reserve(counts.size());
  for (size_t s = 0; s < counts.size(); ++s) {
    if (counts[s] > 0) locks_.emplace_back(rows.shard(s).mutex);
  }
}

void ShardLocks::Lock() {
  for (auto& lock : locks_) lock.lock();
}

void ShardLocks::Unlock() {
  for (auto& lock : locks_) lock.unlock();
}

void OrderRebuild::Run(RowShard* shard) {
  shard->ForEachRow([&](uint32_t row, int64_t) {
    shard->mutex.AssertHeld();
    rows_.push_back({EvictionList::AgeOf(*shard->rows.meta(row)), row});
  });
  std::sort(rows_.begin(), rows_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  shard->order->Clear();
  for (const auto& row : rows_) shard->order->Add(row.second);
  shard->order->MarkSorted();
}

ShardedRows::ShardedRows(int dim, RowType type, int num_shards,
                         const TablePolicies& policies)
    : dim_(dim),
      type_(type),
      storage_(policies.storage),
      row_bytes_(dim * SizeOf(type)),
      computed_bytes_(dim * static_cast<int64_t>(sizeof(float))),
      eviction_(policies.eviction) {
  for (int s = 0; s < num_shards; ++s) {
    auto shard =
        std::make_unique<RowShard>(dim, type, storage_, s, &arena_, &epochs_);
    if (ordered()) {
      shard->order =
          std::make_unique<EvictionOrders>(eviction_, &shard->rows, &arena_);
    }
    shards_.push_back(std::move(shard));
  }
  if (policies.shared_rows > 0) {
    shared_ = std::make_unique<RowStore>(dim, &arena_, 0, type);
  }
}

Status ShardedRows::CheckTrains() const {
  if (storage_ == RowStorage::kSame) return Status();
  return FailedPrecondition("the rows are stored as ", NameOf(storage_),
                            " for serving, so they cannot be trained.");
}

ShardedRows::IndexLists ShardedRows::GroupByShard(
    Span<const int64_t> ids) const {
  IndexLists members(shards_.size());
  for (int64_t i = 0; i < ids.size(); ++i) {
    members[HashOf(ids[i]).shard].push_back(i);
  }
  return members;
}

void ShardedRows::FindEach(Span<const int64_t> ids, Span<RowRef> refs) const {
  ForEachRun(ids, kLoadMeta,
             [&](int64_t first, Span<const int64_t> run, Probe* probes) {
               for (int i = 0; i < run.size(); ++i) {
                 refs[first + i] = probes[i].Confirm(run[i]);
               }
             });
}

void ShardedRows::FindAll(Span<const int64_t> ids, Span<RowRef> refs,
                          const ParallelFor* parallel) const {
  RunParallel(parallel, ids.size(), kFindCost, [&](int64_t begin, int64_t end) {
    FindEach(ids.subspan(begin, end - begin), refs.subspan(begin, end - begin));
  });
}

void ShardedRows::LookAgain(Span<const int64_t> ids, Span<RowRef> refs) const {
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (!refs[i].found()) continue;
    if (RowStore::Holds(refs[i].meta, ids[i])) continue;
    const uint32_t shard = refs[i].shard;
    const uint32_t row = shards_[shard]->Find(HashOf(ids[i]).tag, ids[i]);
    refs[i] = row == LeafIndex::kNoRow ? RowRef{shard} : RefTo(shard, row);
  }
}

Status ShardedRows::Reserve(RowShard* shard, Span<const uint32_t> tags) {
  LODESTAR_RETURN_IF_ERROR(shard->rows.Reserve(tags.size()));
  LODESTAR_RETURN_IF_ERROR(shard->index.Reserve(tags));
  if (shard->order == nullptr) return Status();
  return shard->order->Reserve(shard->rows.capacity());
}

void ShardedRows::Erase(RowShard* shard, uint32_t tag, uint32_t row) {
  shard->index.Remove(tag, row);
  if (shard->rows.marking()) {
    const int64_t id =
        shard->rows.meta(row)->id.load(std::memory_order_relaxed);
    if (!shard->removed.Add(id, shard->rows.live())) changes_.ForgetBase();
  }
  shard->rows.Free(row);
}

bool ShardedRows::Compact(RowShard* shard, int64_t most, uint32_t* low) {
  return shard->rows.Compact(most, low, [&](uint32_t from, uint32_t to) {
    const int64_t id = shard->rows.meta(to)->id.load(std::memory_order_relaxed);
    shard->index.Move(HashOf(id).tag, from, to);
    shard->mutex.AssertHeld();
    if (shard->order != nullptr) shard->order->Move(from, to);
    shard->moves.fetch_add(1, std::memory_order_release);
    // The counter must be visible before the old place is freed.
    std::atomic_thread_fence(std::memory_order_release);
  });
}

int64_t ShardedRows::FreeAll() {
  ForgetBase();
  for (const auto& shard : shards_) {
    shard->mutex.AssertHeld();
    LeafIndex empty(&epochs_);
    shard->rows.FreeAll();
    shard->index.Replace(&empty);
    if (shard->order != nullptr) shard->order->Clear();
  }
  return size_.exchange(0);
}

template <typename Visit>
Status ShardedRows::ForEachStore(const Visit& visit) {
  for (const auto& shard : shards_) {
    LODESTAR_RETURN_IF_ERROR(visit(&shard->rows));
  }
  return shared_ == nullptr ? Status() : visit(shared_.get());
}

Status ShardedRows::ReserveSlots(const SlotShape& slots) {
  return ForEachStore(
      [&](RowStore* rows) { return rows->ReserveSlots(slots); });
}

void ShardedRows::AttachSlots(const SlotShape& slots, Span<const float> inits) {
  for (const auto& shard : shards_) shard->rows.AttachSlots(slots, inits);
  if (shared_ != nullptr) shared_->AttachSlots(slots, inits);
}

Status ShardedRows::ReserveMarks() {
  return ForEachStore([](RowStore* rows) { return rows->ReserveMarks(); });
}

void ShardedRows::StartMarking() {
  for (const auto& shard : shards_) {
    shard->mutex.AssertHeld();
    shard->removed.Take();
    shard->rows.StartMarking();
  }
  if (shared_ != nullptr) shared_->StartMarking();
}

void ShardedRows::StopMarking() {
  for (const auto& shard : shards_) {
    shard->mutex.AssertHeld();
    shard->rows.StopMarking();
    shard->removed.Forget();
  }
  if (shared_ != nullptr) shared_->StopMarking();
}

void ShardedRows::ForgetBase() {
  changes_.ForgetBase();
  if (!changes_.running()) StopMarking();
}

void ShardedRows::SetBase(const std::string& base) {
  StopMarking();
  if (!base.empty() && ReserveMarks().ok()) {
    StartMarking();
    changes_.SetBase(base);
  } else {
    changes_.SetBase("");
  }
}

void ShardedRows::LockBetweenSnapshots(ShardLocks* locks) const {
  while (true) {
    changes_.WaitForEnd();
    locks->Lock();
    // Snapshots begin under all locks.
    if (!changes_.running()) return;
    locks->Unlock();
  }
}

ShardedRows::Counts ShardedRows::CopyOut(const RowStore& rows, uint32_t row,
                                         int64_t id, int64_t i, int64_t count,
                                         int64_t num_slots, Numbers* values,
                                         Numbers* slots) const {
  rows.Lock(row, id);
  rows.ReadValues(row, values->at(i * dim_));
  for (int64_t s = 0; s < num_slots; ++s) {
    std::memcpy(slots->at((s * count + i) * rows.slot_width()),
                rows.slot(row, static_cast<int>(s)), rows.bytes_per_slot());
  }
  const RowMeta* meta = rows.meta(row);
  const Counts seen = {meta->frequency.load(std::memory_order_relaxed),
                       meta->last_seen.load(std::memory_order_relaxed)};
  rows.UnlockUnchanged(row);
  return seen;
}

void ShardedRows::CopyIn(const NumbersView& values, const NumbersView& slots,
                         int64_t i, int64_t count, RowStore* rows,
                         uint32_t row) {
  if (!values.empty()) rows->WriteValues(row, values.at(i * dim_));
  if (slots.empty()) return;
  for (int64_t s = 0; s < rows->slots().count; ++s) {
    std::memcpy(rows->slot(row, static_cast<int>(s)),
                slots.at((s * count + i) * rows->slot_width()),
                rows->bytes_per_slot());
  }
}

void ShardedRows::Draw(const RowInitializer& initializer, int64_t id,
                       void* value) const {
  VisitRowType(type_, [&](auto zero) {
    initializer.Draw(id, dim_, static_cast<decltype(zero)*>(value));
  });
}

void ShardedRows::DrawInto(const RowInitializer& initializer, int64_t id,
                           RowStore* rows, uint32_t row) {
  VisitRowType(type_, [&](auto zero) {
    using T = decltype(zero);
    T part[kPart];
    for (int first = 0; first < dim_; first += kPart) {
      const int count = std::min(kPart, dim_ - first);
      initializer.DrawColumns(id, first, count, part);
      CopyRowIn(part, count * sizeof(T),
                static_cast<T*>(rows->values(row)) + first);
    }
  });
}

}  // namespace lodestar
