#include <algorithm>
#include <new>
#include <utility>
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

Status EmbeddingStore::ReserveOptimizer(const AttachedOptimizer& optimizer) {
  for (const auto& shard : shards_) {
    LODESTAR_RETURN_IF_ERROR(
        shard->rows.ReserveSlots(optimizer.slot_inits.size()));
  }
  return Status();
}

void EmbeddingStore::Attach(AttachedOptimizer optimizer) {
  // First, so that updates of another optimizer keep off the slots.
  attachment_.fetch_add(1, std::memory_order_relaxed);
  for (const auto& shard : shards_) {
    shard->rows.AttachSlots(optimizer.slot_inits);
  }
  std::lock_guard<std::mutex> lock(optimizer_mutex_);
  optimizer_ = std::move(optimizer);
  attached_.store(!optimizer_.name.empty(), std::memory_order_release);
}

uint64_t EmbeddingStore::AttachmentOf(const std::string& name) const {
  std::lock_guard<std::mutex> lock(optimizer_mutex_);
  return optimizer_.name == name ? attachment_.load(std::memory_order_relaxed)
                                 : kNoAttachment;
}

Status EmbeddingStore::Apply(Span<const int64_t> unique_ids,
                             const float* gradients, const std::string& name,
                             const SparseOptimizer& optimizer,
                             Span<const float> slot_inits, bool create_missing,
                             int64_t next_step,
                             const ParallelFor* parallel) try {
  if (slot_inits.size() != optimizer.num_slots()) {
    return InvalidArgument("`slot_inits` has ", slot_inits.size(),
                           " numbers, but '", name, "' has ",
                           optimizer.num_slots(), " optimizer slots");
  }
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(name));
  AttachedOptimizer attached;
  attached.name = name;
  if (!SparseOptimizer::SlotNames(name, &attached.slot_names)) {
    return InvalidArgument("unknown optimizer '", name, "'");
  }
  attached.slot_inits.assign(slot_inits.begin(), slot_inits.end());
  std::vector<RowRef> refs(unique_ids.size());
  FindAll(unique_ids, refs, parallel);
  std::vector<int64_t> missing;
  ColdIds cold;
  for (int64_t i = 0; i < unique_ids.size(); ++i) {
    if (refs[i].found()) continue;
    if (create_missing) missing.push_back(i);
    if (shared_ != nullptr) cold.push_back({SharedRowOf(unique_ids[i]), i});
  }
  AttachedOptimizer of_shared;
  if (shared_ != nullptr) {
    of_shared = attached;
    LODESTAR_RETURN_IF_ERROR(ReserveShared(attached));
  }
  InsertOptions insert;
  insert.now = step();
  // Seen by the replica that the gradient comes from.
  insert.admission = insert.count = UsesAdmission();
  LODESTAR_RETURN_IF_ERROR(InsertMissing(
      unique_ids, missing, insert, refs, parallel,
      [&](int64_t i, const RowRef& ref) { FillNewRow(unique_ids[i], ref); },
      &attached));
  if (shared_ != nullptr) {
    cold.erase(
        std::remove_if(cold.begin(), cold.end(),
                       [&](const auto& c) { return refs[c.second].found(); }),
        cold.end());
    AttachShared(std::move(of_shared));
    ApplyShared(&cold, gradients, optimizer);
  }
  const uint64_t attachment = AttachmentOf(name);
  const int num_slots = optimizer.num_slots();
  const auto body = [&](int64_t begin, int64_t end) {
    float value[kMaxDim];
    int64_t dropped = 0;
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end && refs[i + kAhead].found()) {
        const RowRef& ahead = refs[i + kAhead];
        shards_[ahead.shard]->rows.PrefetchWithSlots(ahead.row, num_slots);
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
      if (held && attachment_.load(std::memory_order_relaxed) != attachment) {
        rows.Unlock(ref.row);
        held = false;
      }
      if (!held) {
        // A shared row has taken it if there was none at first.
        if (shared_ == nullptr || refs[i].found()) ++dropped;
        continue;
      }
      float* row = rows.values(ref.row);
      float* slots[RowStore::kMaxSlots];
      for (int s = 0; s < num_slots; ++s) slots[s] = rows.slot(ref.row, s);
      CopyRowOut(row, dim_, value);
      optimizer.Update(gradients + i * dim_, dim_, value, slots);
      CopyRowIn(value, dim_, row);
      rows.Unlock(ref.row);
    }
    if (dropped > 0) {
      gradients_dropped_.fetch_add(dropped, std::memory_order_relaxed);
    }
  };
  RunParallel(parallel, unique_ids.size(), RowCost(dim_ * (2 + num_slots)),
              body);
  if (own_step_.load(std::memory_order_relaxed)) return Status();
  if (next_step < 0) {
    step_.fetch_add(1, std::memory_order_relaxed);
  } else {
    step_.store(next_step, std::memory_order_relaxed);
  }
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the gradients of ",
                           unique_ids.size(), " ids");
}

}  // namespace lodestar
