#include <vector>

#include "tf_ops/core/embedding_run.h"
#include "tf_ops/core/embedding_store.h"

namespace lodestar {

Status EmbeddingStore::CheckOptimizer(const std::string& name) const {
  std::lock_guard<std::mutex> lock(optimizer_mutex_);
  if (optimizer_.name.empty() || optimizer_.name == name) return Status();
  return Status(
      StatusCode::kFailedPrecondition,
      StrCat("the table holds the optimizer slots of '", optimizer_.name,
             "', but '", name, "' is to be applied"));
}

Status EmbeddingStore::AttachLocked(const AttachedOptimizer& optimizer) {
  for (const auto& shard : shards_) {
    LODESTAR_RETURN_IF_ERROR(shard->rows.AttachSlots(optimizer.slot_inits));
  }
  std::lock_guard<std::mutex> lock(optimizer_mutex_);
  optimizer_ = optimizer;
  attached_.store(!optimizer.name.empty(), std::memory_order_release);
  return Status();
}

Status EmbeddingStore::Attach(const std::string& name,
                              Span<const float> slot_inits) {
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(name));
  if (attached_.load(std::memory_order_acquire)) return Status();
  ShardLocks locks(*this);
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(name));
  if (attached_.load(std::memory_order_acquire)) return Status();
  AttachedOptimizer optimizer;
  optimizer.name = name;
  if (!SparseOptimizer::SlotNames(name, &optimizer.slot_names)) {
    return InvalidArgument("unknown optimizer '", name, "'");
  }
  optimizer.slot_inits.assign(slot_inits.begin(), slot_inits.end());
  return AttachLocked(optimizer);
}

Status EmbeddingStore::Apply(Span<const int64_t> unique_ids,
                             const float* gradients, const std::string& name,
                             const SparseOptimizer& optimizer,
                             Span<const float> slot_inits, bool create_missing,
                             int64_t next_step, const ParallelFor* parallel) {
  if (slot_inits.size() != optimizer.num_slots()) {
    return InvalidArgument("`slot_inits` has ", slot_inits.size(),
                           " numbers, but '", name, "' has ",
                           optimizer.num_slots(), " optimizer slots");
  }
  LODESTAR_RETURN_IF_ERROR(Attach(name, slot_inits));
  std::vector<RowRef> refs(unique_ids.size());
  FindAll(unique_ids, refs, parallel);
  if (create_missing) {
    std::vector<int64_t> missing;
    for (int64_t i = 0; i < unique_ids.size(); ++i) {
      if (!refs[i].found()) missing.push_back(i);
    }
    LODESTAR_RETURN_IF_ERROR(InsertMissing(
        unique_ids, missing, step(), 0, refs, parallel,
        [&](int64_t i, const RowRef& ref) { FillNewRow(unique_ids[i], ref); }));
  }
  const int num_slots = optimizer.num_slots();
  const auto body = [&](int64_t begin, int64_t end) {
    constexpr int64_t kAhead = 8;
    std::vector<float> value(dim_);
    int64_t dropped = 0;
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end && refs[i + kAhead].found()) {
        const RowRef& ahead = refs[i + kAhead];
        const RowStore& rows = shards_[ahead.shard]->rows;
        __builtin_prefetch(rows.meta(ahead.row), 1);
        PrefetchRow(rows.values(ahead.row), dim_);
        for (int s = 0; s < num_slots; ++s) {
          PrefetchRow(rows.slot(ahead.row, s), dim_);
        }
      }
      RowRef ref = refs[i];
      const RowStore& rows = shards_[ref.shard]->rows;
      bool held = ref.found() && rows.Lock(ref.row, unique_ids[i]);
      while (!held && ref.found()) {
        // Gone since it was found: to the row that the id has now, if any.
        EpochDomain::Guard guard(&epochs_);
        ref.row = FindRow(*shards_[ref.shard], PlaceOf(unique_ids[i]).tag,
                          unique_ids[i]);
        held = ref.found() && rows.Lock(ref.row, unique_ids[i]);
      }
      if (!held) {
        ++dropped;
        continue;
      }
      float* row = rows.values(ref.row);
      float* slots[RowStore::kMaxSlots];
      for (int s = 0; s < num_slots; ++s) slots[s] = rows.slot(ref.row, s);
      CopyRowOut(row, dim_, value.data());
      optimizer.Update(gradients + i * dim_, dim_, value.data(), slots);
      CopyRowIn(value.data(), dim_, row);
      rows.Unlock(ref.row);
    }
    if (dropped > 0) {
      gradients_dropped_.fetch_add(dropped, std::memory_order_relaxed);
    }
  };
  RunParallel(parallel, unique_ids.size(), RowCost(dim_ * (2 + num_slots)),
              body);
  if (next_step < 0) {
    step_.fetch_add(1, std::memory_order_relaxed);
  } else {
    SetStep(next_step);
  }
  return Status();
}

}  // namespace lodestar
